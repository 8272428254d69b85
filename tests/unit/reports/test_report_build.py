"""A report counts the right things over the right denominators."""

import json

import pytest

from services.contract.reports.judgement import JudgementReport
from services.contract.reports.parts import JudgeReport
from services.reports.item import ItemRow, item_row
from services.reports.judgement.build import build
from services.reports.rates import MAX_SYSTEMS
from services.stats.intervals import FEW_CLUSTERS
from services.vocabulary import Decide, Flag, ItemError, ItemStatus, JobStatus, Mode, Order, Orders
from tests.unit.reports.rows import TIE, A, B, failed, job, judge, opinion, row, votes


def codes(report: JudgementReport) -> set[str]:
    return {note.code for note in report.notes}


def only(report: JudgementReport) -> JudgeReport:
    (judge,) = report.judges
    return judge


def test_win_rates_are_over_items_and_a_tie_is_half_a_win() -> None:
    report = build(job(), 4, [row(0, A), row(1, A), row(2, B), row(3, TIE)])
    a, b = report.sides["A"], report.sides["B"]
    assert (a.pairs, a.wins, a.ties, a.losses, a.rate) == (4, 2, 1, 1, 0.625)
    assert (b.pairs, b.wins, b.ties, b.losses, b.rate) == (4, 1, 1, 2, 0.375)
    assert report.items.ties.count == 1


def test_failed_items_and_abstentions_stand_beside_the_win_rate_not_in_it() -> None:
    rows = [row(0, A), row(1, None), failed(2, ItemError.TRUNCATED), failed(3, ItemError.UNPARSEABLE)]
    report = build(job(status=JobStatus.COMPLETED_WITH_ERRORS), 4, rows)
    assert report.sides["A"].pairs == 1
    assert (report.items.succeeded.count, report.items.succeeded.n) == (2, 4)
    assert (report.items.failed.count, report.items.failed.n) == (2, 4)
    assert (report.items.abstained.count, report.items.abstained.n) == (1, 2)
    assert report.items.errors == {ItemError.TRUNCATED: 1, ItemError.UNPARSEABLE: 1}
    assert "failures" in codes(report)


def test_a_job_without_one_success_has_no_rates() -> None:
    report = build(job(status=JobStatus.FAILED), 2, [failed(i, ItemError.RUNTIME_ERROR, label=A) for i in range(2)])
    a = report.sides["A"]
    assert (a.pairs, a.rate, a.wilson, a.bootstrap, a.t) == (0, None, None, None, None)
    assert report.items.ties.rate is None
    assert only(report).position.first_slot.rate is None
    assert report.labels is not None
    assert (report.labels.labelled, report.labels.verdict.raw.n, report.labels.verdict.raw.rate) == (2, 0, None)
    assert only(report).labels is not None
    assert only(report).labels.orders is None
    assert report.items.failed.rate == 1


def test_a_job_nobody_has_heard_yet_has_no_rates_either() -> None:
    report = build(job(status=JobStatus.QUEUED, started_at=None, ended_at=None), 7, [])
    assert (report.items.total, report.items.heard, report.items.failed.rate) == (7, 0, None)
    assert (report.usage.seconds, report.usage.calls_per_second) == (None, None)
    assert codes(report) == {"incomplete"}


def test_all_ties_are_a_rate_of_one_half_without_width() -> None:
    report = build(job(), 40, [row(i, TIE, opinion(votes=votes(TIE, TIE), first_slot=0)) for i in range(40)])
    a = report.sides["A"]
    assert (a.rate, a.ties, a.bootstrap) == (0.5, 40, a.bootstrap)
    assert a.bootstrap is not None
    assert (a.bootstrap.low, a.bootstrap.high) == (0.5, 0.5)
    assert only(report).position.first_slot.n == 0
    assert only(report).position.consistent.rate == 1
    assert only(report).position.order_kappa is None


def test_a_system_is_followed_to_whichever_side_it_stood_on() -> None:
    rows = [
        row(0, A, systems=("ours", "theirs")),
        row(1, B, systems=("theirs", "ours")),
        row(2, A, systems=("theirs", "ours")),
        row(3, TIE, systems=("ours", "theirs")),
        row(4, A, systems=("ours", "ours")),  # says nothing about ours
        row(5, A, systems=(None, None)),
    ]
    report = build(job(), 6, rows)
    ours, theirs = report.systems
    assert (ours.system, ours.pairs, ours.wins, ours.ties, ours.losses, ours.rate) == ("ours", 4, 2, 1, 1, 0.625)
    assert (theirs.system, theirs.pairs, theirs.rate) == ("theirs", 4, 0.375)


def test_the_interval_of_a_system_respects_clusters() -> None:
    rows = [row(i, A if i < 50 else B, cluster="first" if i < 50 else "second", systems=("x", "y")) for i in range(100)]
    report = build(job(), 100, rows)
    x = next(rate for rate in report.systems if rate.system == "x")
    assert (x.clusters, x.rate) == (2, 0.5)
    assert x.bootstrap is not None
    assert (x.bootstrap.low, x.bootstrap.high) == (0, 1)
    assert x.wilson is not None
    assert x.wilson.low > 0.4


def test_systems_past_the_limit_are_left_out_and_it_says_so() -> None:
    rows = [row(i, A, systems=(f"system {i}", "base")) for i in range(MAX_SYSTEMS + 5)]
    report = build(job(), len(rows), rows)
    assert len(report.systems) == MAX_SYSTEMS
    assert "systems_omitted" in codes(report)


def test_both_orders_are_compared_with_one_order_over_the_same_items() -> None:
    rows = [
        row(0, A, label=A),  # always the first slot: A as given, B swapped
        row(1, A, label=A),
        row(2, B, label=B),
        row(3, B, label=B),
        row(4, A, label=B),
        row(5, A, label=None),
        # heard in one order: not in the comparison
        row(6, B, opinion(winner=B, votes={Order.AB: {B: 1}}, first_slot=0), label=B),
        failed(7, ItemError.TRUNCATED, label=B),
    ]
    report = build(job(status=JobStatus.COMPLETED_WITH_ERRORS), 8, rows)
    labels, own = report.labels, only(report).labels
    assert labels is not None
    assert labels.labelled == 7
    assert (labels.verdict.raw.count, labels.verdict.raw.n) == (5, 6)
    assert (labels.verdict.base.count, labels.verdict.base.n) == (4, 6)
    assert labels.best is None
    assert own is not None
    assert own.orders is not None
    assert own.opinion == labels.verdict
    assert (own.orders.given.raw.count, own.orders.given.raw.n) == (2, 5)
    assert (own.orders.swapped.raw.count, own.orders.swapped.raw.n) == (3, 5)
    assert (own.orders.both.raw.count, own.orders.both.raw.n) == (4, 5)
    # 4 of 5 agree; chance: A 3/5 * 2/5 + B 2/5 * 3/5 = 12/25
    assert own.orders.both.kappa == pytest.approx((0.8 - 0.48) / (1 - 0.48))
    assert own.orders.given.kappa == 0


def test_without_labels_there_is_no_agreement() -> None:
    assert build(job(), 1, [row(0)]).labels is None


def test_position_counts_hard_answers_and_items_heard_in_both_orders() -> None:
    rows = [
        row(0, A, opinion(votes=votes(A, B), first_slot=2)),
        row(1, A, opinion(votes=votes(A, A), first_slot=1)),
        row(2, A, opinion(votes=votes(TIE, B), first_slot=1)),
        row(3, A, opinion(votes={Order.AB: {A: 1}, Order.BA: {A: 0, B: 0, TIE: 0}}, first_slot=1)),
    ]
    position = only(build(job(), 4, rows)).position
    assert (position.first_slot.count, position.first_slot.n) == (5, 6)
    assert (position.consistent.count, position.consistent.n) == (1, 3)


def test_an_order_of_several_samples_answers_by_majority() -> None:
    three = {Order.AB: {A: 2, B: 1}, Order.BA: {A: 1, B: 2}}
    even = {Order.AB: {A: 1, B: 1}, Order.BA: {TIE: 2}}
    rows = [row(0, A, opinion(votes=three, first_slot=4)), row(1, TIE, opinion(votes=even, first_slot=1))]
    position = only(build(job(judge(samples=3)), 2, rows)).position
    assert (position.first_slot.count, position.first_slot.n) == (5, 8)
    assert (position.consistent.count, position.consistent.n) == (1, 2)


def test_a_leaning_judge_is_called_so_and_a_straight_one_is_not() -> None:
    leaning = build(job(), 20, [row(i, A) for i in range(20)])
    straight = build(job(), 20, [row(i, A, opinion(votes=votes(A, A), first_slot=1)) for i in range(20)])
    assert "position_bias" in codes(leaning)
    assert "position_bias" not in codes(straight)


def test_one_order_cannot_show_position_bias() -> None:
    rows = [row(i, A, opinion(votes={Order.AB: {A: 1}}, first_slot=1)) for i in range(20)]
    report = build(job(judge(orders=Orders.GIVEN)), 20, rows)
    assert only(report).position.consistent.rate is None
    assert "one_order" in codes(report)
    assert "position_bias" not in codes(report)


def test_few_clusters_and_none_at_all_are_told_apart() -> None:
    none_named = build(job(), FEW_CLUSTERS, [row(i) for i in range(FEW_CLUSTERS)])
    few = build(job(), 60, [row(i, cluster=f"c{i % 6}") for i in range(60)])
    one_short = build(job(), 60, [row(i, cluster=f"c{i % (FEW_CLUSTERS - 1)}") for i in range(60)])
    many = build(job(), 60, [row(i, cluster=f"c{i % FEW_CLUSTERS}") for i in range(60)])
    assert codes(none_named) & {"no_clusters", "few_clusters"} == {"no_clusters"}
    assert codes(few) & {"no_clusters", "few_clusters"} == {"few_clusters"}
    assert codes(one_short) & {"no_clusters", "few_clusters"} == {"few_clusters"}
    assert codes(many) & {"no_clusters", "few_clusters"} == set()
    assert few.sides["A"].clusters == 6


def test_agreement_within_chance_is_called_so() -> None:
    half = build(job(), 20, [row(i, A if i % 4 < 2 else B, label=A if i % 2 else B) for i in range(20)])
    all_right = build(job(), 20, [row(i, A if i % 2 else B, label=A if i % 2 else B) for i in range(20)])
    assert "within_chance" in codes(half)
    assert "within_chance" not in codes(all_right)


def test_ties_where_the_label_names_a_side_are_pointed_out() -> None:
    rows = [row(0, TIE, label=A), row(1, TIE, label=TIE), row(2, TIE, label=B), row(3, A, label=TIE)]
    (note,) = (note for note in build(job(), 4, rows).notes if note.code == "ties_against_labels")
    assert note.message.startswith("2 verdicts")
    assert "ties_against_labels" not in codes(build(job(), 2, rows[1::2]))


def test_answers_and_usage_are_sums_over_items() -> None:
    suspected = frozenset({Flag.INJECTION_SUSPECTED, Flag.CONFLICTING})
    rows = [
        row(0, A, opinion(forced=1)),
        row(1, A, opinion(flags=suspected)),
        failed(2, ItemError.UNPARSEABLE, calls=4),
    ]
    report = build(job(judge(mode=Mode.REASON)), 3, rows)
    assert (only(report).answers.valid.count, only(report).answers.valid.n) == (4, 6)
    assert only(report).answers.forced is not None
    assert (only(report).answers.forced.count, only(report).answers.forced.n) == (1, 4)
    assert (report.items.injection_suspected.count, report.items.injection_suspected.n) == (1, 3)
    assert (report.items.conflicting.count, report.items.conflicting.n) == (1, 3)
    assert (report.usage.calls, report.usage.prompt_tokens, report.usage.completion_tokens) == (8, 300, 6)
    assert report.usage.cached.rate == 0.25
    assert (report.usage.seconds, report.usage.calls_per_second) == (10, 0.8)


def test_in_direct_mode_no_answer_counts_as_forced() -> None:
    report = build(job(judge(mode=Mode.DIRECT)), 1, [row(0, A, opinion(forced=2))])
    assert only(report).answers.forced is None
    assert json.loads(report.json_text())["judges"][0]["answers"]["forced"] is None


def test_answers_that_lack_the_probability_that_decides_are_pointed_out() -> None:
    rows = [row(0, A, opinion(without_p=1)), row(1, A, opinion(without_p=2)), row(2)]
    soft, voted = (build(job(judge(mode=Mode.REASON, decide=decide)), 3, rows) for decide in (Decide.SOFT, Decide.VOTE))
    (note,) = (note for note in soft.notes if note.code == "without_probability")
    assert note.message.startswith("3 of 6 answers")
    assert "without_probability" not in codes(voted)
    assert "without_probability" not in codes(build(job(), 1, [row(0)]))


def test_rows_may_come_in_any_order() -> None:
    rows = [row(i, (A, B, TIE)[i % 3], cluster=f"c{i % 5}", label=(A, B)[i % 2]) for i in range(50)]
    assert build(job(), 50, rows) == build(job(), 50, reversed(rows))


def test_a_row_is_made_of_what_is_stored() -> None:
    said = opinion(winner=B, invalid=1, forced=2, flags=frozenset({Flag.FORCED, Flag.INJECTION_SUSPECTED}))
    stored = {
        "seq": 4,
        "status": "succeeded",
        "winner": "B",
        "standing": None,
        "disagreement": None,
        "error_code": None,
        "calls": 3,
        "facets": '{"label":"tie","cluster":"v\\u0000","systems":["ours","\\ud800"]}',
        "opinions": [json.dumps(said.as_json())],
    }
    tokens = {"prompt_tokens": 300, "cached_tokens": 100, "completion_tokens": 3}
    assert item_row(stored | tokens) == ItemRow(
        seq=4,
        status=ItemStatus.SUCCEEDED,
        winner=B,
        standing=None,
        disagreement=None,
        error=None,
        label=TIE,
        cluster="v\0",
        systems=("ours", "\ud800"),
        opinions=(said,),
        calls=3,
        **tokens,
    )


def test_a_failed_item_without_an_opinion_is_counted_too() -> None:
    made = failed(1, ItemError.POISONED, opinions=(), calls=0, prompt_tokens=0, cached_tokens=0, completion_tokens=0)
    report = build(job(), 2, [made, row(0)])
    assert report.items.errors == {ItemError.POISONED: 1}
    assert only(report).answers.valid.n == 2


def test_a_report_with_a_surrogate_in_it_is_still_json() -> None:
    report = build(job(), 1, [row(0, A, systems=("\ud800", "plain"))])
    shown = json.loads(report.json_text())
    assert [rate["system"] for rate in shown["systems"]] == ["\ud800", "plain"]
    assert shown["sides"]["A"]["rate"] == 1
    report.json_text().encode("utf-8")
