"""What a report tells of each judge, and of a panel."""

import pytest

from services.contract.options import StopAt
from services.contract.reports.parts import JudgeReport, ReportedJudge
from services.reports.item import ItemRow
from services.reports.judgement.build import build
from services.vocabulary import Decide, ItemError, ItemStatus, Mode, Order, Orders, Outcome
from tests.unit.reports.rows import (
    TIE,
    A,
    B,
    failed,
    job,
    judge,
    opinion,
    ranked,
    ranking,
    row,
    silent,
    standing,
    votes,
)

ONE, OTHER, THIRD = judge("one"), judge("other", mode=Mode.REASON, decide=Decide.VOTE), judge("third")
FAILURES = (
    Outcome.TRUNCATED,
    Outcome.UNPARSEABLE,
    Outcome.CONTEXT_OVERFLOW,
    Outcome.ABORTED,
    Outcome.FAILED,
    Outcome.POISONED,
)


def parts(rows: list[ItemRow], *judges: ReportedJudge) -> tuple[JudgeReport, ...]:
    return build(job(*judges), len(rows), rows).judges


def test_an_outage_a_truncation_and_an_unreadable_reply_are_told_apart() -> None:
    mixed = {Outcome.DECIDED: 1, Outcome.TIE: 2, Outcome.TRUNCATED: 3}
    rows = [
        row(0, A, opinion(valid=3, invalid=3, outcomes=mixed)),
        failed(1, ItemError.RUNTIME_ERROR, silent(ItemError.RUNTIME_ERROR, Outcome.FAILED)),
        failed(2, ItemError.UNPARSEABLE, silent(ItemError.UNPARSEABLE, Outcome.UNPARSEABLE)),
    ]
    (part,) = parts(rows, judge())
    assert part.answers.outcomes == {
        Outcome.DECIDED: 1,
        Outcome.TIE: 2,
        Outcome.UNPARSEABLE: 2,
        Outcome.TRUNCATED: 3,
        Outcome.CONTEXT_OVERFLOW: 0,
        Outcome.ABORTED: 0,
        Outcome.FAILED: 2,
        Outcome.POISONED: 0,
    }
    assert (part.answers.valid.count, part.answers.valid.n) == (3, 10)
    assert (part.answered.count, part.answered.n) == (1, 3)


@pytest.mark.parametrize("outcome", FAILURES)
def test_no_failure_is_a_tie(outcome: Outcome) -> None:
    error = ItemError.RUNTIME_ERROR
    rows = [row(0, A, label=TIE), failed(1, error, silent(error, outcome), label=TIE, systems=("x", "y"))]
    report = build(job(), 2, rows)
    (part,) = report.judges
    assert part.answers.outcomes[Outcome.TIE] == 0
    assert part.answers.outcomes[outcome] == 2
    assert (report.items.ties.count, report.items.ties.n) == (0, 1)
    assert [rate.ties for rate in report.sides.values()] == [0, 0]
    assert [(rate.pairs, rate.rate) for rate in report.systems] == [(0, None), (0, None)]
    assert report.labels is not None
    assert (report.labels.verdict.raw.count, report.labels.verdict.raw.n) == (0, 1)
    assert part.position.consistent.n == 1


def test_hearings_that_ended_early_are_of_the_pairs_asked_for_several_samples() -> None:
    three = standing(3, {(0, 1): 1.0, (1, 2): 1.0})
    rows = [
        row(0, A, opinion(stopped="certain")),
        row(1, A, opinion(stopped="certain")),
        row(2, A, opinion(stopped="confident")),
        row(3, A, opinion(stopped=None)),
        ranked(4, three),
    ]
    (several,) = parts(rows, judge(samples=4, early_stop=StopAt(confidence=0.95)))
    (one,) = parts(rows, judge(samples=1))
    assert several.stopped_early is not None
    assert (several.stopped_early.certain.count, several.stopped_early.certain.n) == (2, 4)
    assert (several.stopped_early.confident.count, several.stopped_early.confident.n) == (1, 4)
    assert one.stopped_early is None


def test_a_panel_is_told_how_far_its_judges_agree() -> None:
    rows = [
        row(0, A, opinion(judge="one"), opinion(judge="other"), opinion(judge="third"), disagreement=0.0),
        row(1, A, opinion(judge="one"), opinion(judge="other"), opinion(judge="third", winner=B), disagreement=2 / 3),
        row(2, B, opinion(judge="one", winner=B), silent(ItemError.TRUNCATED, judge="other"), disagreement=None),
        row(3, TIE, opinion(judge="one", winner=B), opinion(judge="other", winner=A), disagreement=1.0),
        row(4, None, opinion(judge="one", winner=None), opinion(judge="other", winner=None), disagreement=0.0),
        failed(5, ItemError.TRUNCATED, silent(ItemError.TRUNCATED, judge="one")),
    ]
    report = build(job(ONE, OTHER, THIRD), 6, rows)
    panel = report.panel
    assert panel is not None
    assert panel.disagreement == pytest.approx((2 / 3 + 1) / 4)
    assert (panel.unanimous.count, panel.unanimous.n) == (2, 4)
    assert (panel.partial.count, panel.partial.n) == (3, 5)
    one, other, third = report.judges
    assert [(part.answered.count, part.answered.n) for part in report.judges] == [(5, 6), (4, 6), (2, 6)]
    assert one.agrees is not None
    assert (one.agrees.count, one.agrees.n) == (3, 4)  # an abstention is no winner
    assert other.agrees is not None
    assert (other.agrees.count, other.agrees.n) == (2, 3)
    assert third.agrees is not None
    assert (third.agrees.count, third.agrees.n) == (1, 2)


def test_one_judge_is_no_panel() -> None:
    report = build(job(ONE), 1, [row(0, A, opinion(judge="one"))])
    assert report.panel is None
    assert report.judges[0].agrees is None


def test_each_judge_is_compared_with_the_labels_by_its_own_opinions() -> None:
    rows = [
        row(0, A, opinion(judge="one"), opinion(judge="other", winner=B, votes=votes(B, B)), label=A),
        row(1, B, opinion(judge="one"), opinion(judge="other", winner=B, votes=votes(B, B)), label=B),
        row(2, A, opinion(judge="one", votes={Order.BA: {A: 1}}, first_slot=0), label=A),
        row(3, A, opinion(judge="one"), opinion(judge="other")),
    ]
    report = build(job(ONE, OTHER), 4, rows)
    one, other = (part.labels for part in report.judges)
    assert report.labels is not None
    assert (report.labels.labelled, report.labels.verdict.raw.count, report.labels.verdict.raw.n) == (3, 3, 3)
    assert one is not None
    assert (one.opinion.raw.count, one.opinion.raw.n) == (2, 3)
    assert one.orders is not None
    given, swapped, both = (
        (part.raw.count, part.raw.n) for part in (one.orders.given, one.orders.swapped, one.orders.both)
    )
    assert (given, swapped, both) == ((1, 2), (1, 2), (1, 2))  # A as given, B swapped, A out of both
    assert other is not None
    assert (other.opinion.raw.count, other.opinion.raw.n) == (1, 2)


def test_a_judge_that_met_no_label_has_no_agreement() -> None:
    rows = [row(0, A, opinion(judge="one"), label=A), row(1, A, opinion(judge="one"), opinion(judge="other"))]
    one, other = parts(rows, ONE, OTHER)
    assert one.labels is not None
    assert other.labels is None


def test_calls_and_tokens_are_each_judges_own() -> None:
    dear = opinion(judge="other", calls=5, prompt_tokens=1_000, cached_tokens=500, completion_tokens=700)
    rows = [row(seq, A, opinion(judge="one"), dear, calls=7, prompt_tokens=1_100) for seq in range(2)]
    report = build(job(ONE, OTHER), 2, rows)
    one, other = (part.usage for part in report.judges)
    assert (one.calls, one.prompt_tokens, one.cached.count, one.completion_tokens) == (4, 200, 50, 4)
    assert (other.calls, other.prompt_tokens, other.cached.rate, other.completion_tokens) == (10, 2_000, 0.5, 1_400)
    assert (report.usage.calls, report.usage.prompt_tokens) == (14, 2_200)


def test_grades_are_means_over_the_candidates_of_a_system() -> None:
    rows = [
        row(0, A, opinion(judge="one", grades=(5.0, 2.0)), systems=("ours", "theirs")),
        row(1, B, opinion(judge="one", grades=(3.0, 4.0)), systems=("theirs", "ours")),
        row(2, None, opinion(judge="one", grades=(1.0, None)), systems=("theirs", None), status=ItemStatus.FAILED),
        row(3, A, opinion(judge="one", grades=(3.0, 4.5)), systems=("ours", "ours")),
        row(4, A, opinion(judge="other", grades=None), systems=("ours", "theirs")),
    ]
    one, other = parts(rows, ONE, OTHER)
    assert [(grade.system, grade.mean, grade.candidates) for grade in one.grades] == [
        ("ours", 4.125, 4),
        ("theirs", 2.0, 3),
    ]
    assert other.grades == ()


def test_notes_about_a_judge_name_it() -> None:
    leaning = [opinion(judge="one", without_p=1), opinion(judge="other", votes=votes(A, A), first_slot=1, without_p=1)]
    report = build(job(ONE, OTHER), 20, [row(seq, A, *leaning) for seq in range(20)])
    about = {(note.code, note.judge) for note in report.notes}
    assert about == {
        ("position_bias", "one"),
        ("without_probability", "one"),
        ("no_clusters", None),
        ("few_clusters", None),
    }


def test_a_judge_that_grades_candidates_alone_has_no_position() -> None:
    graded = opinion(votes={}, first_slot=0, consistent=None, grades=(2.0, 4.0))
    report = build(job(judge(orders=Orders.GIVEN)), 1, [row(0, B, graded)])
    (part,) = report.judges
    assert (part.position.first_slot.n, part.position.consistent.n, part.position.order_kappa) == (0, 0, None)
    assert "one_order" not in {note.code for note in report.notes}


def test_position_counts_every_pair_of_an_item() -> None:
    said = ranking(
        {(0, 1): 1.0, (0, 2): 0.5, (1, 2): 0.0},
        [votes(A, A), votes(A, B), {Order.AB: {B: 1}, Order.BA: {}}],
        3,
        first_slot=3,
    )
    assert said.standing is not None
    (part,) = parts([ranked(0, said.standing, said), row(1, A)], judge())
    assert (part.position.first_slot.count, part.position.first_slot.n) == (5, 7)
    assert (part.position.consistent.count, part.position.consistent.n) == (1, 3)


def test_grades_of_an_opinion_without_one_order_count_nowhere() -> None:
    biased = silent(ItemError.TRUNCATED, grades=(5.0, 1.0), valid=1, invalid=1)
    rows = [
        row(0, A, opinion(grades=(3.0, 2.0)), systems=("x", "y")),
        failed(1, ItemError.TRUNCATED, biased, systems=("x", "y")),
    ]
    (part,) = parts(rows, judge())
    assert [(grade.system, grade.mean, grade.candidates) for grade in part.grades] == [("x", 3.0, 1), ("y", 2.0, 1)]


def test_what_was_read_again_is_no_cost_of_its_readers() -> None:
    nothing = {"calls": 0, "prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0}
    heard, read = parts([row(0)], judge())[0], parts([row(0, **nothing)], judge())[0]
    assert (heard.usage.calls, heard.usage.prompt_tokens, heard.usage.completion_tokens) == (2, 100, 2)
    assert (read.usage.calls, read.usage.prompt_tokens, read.usage.completion_tokens) == (0, 0, 0)
    assert (read.usage.cached.count, read.usage.cached.n) == (0, 0)
    assert read.answers == heard.answers
