"""The text of a report shows what the report holds, whatever callers call their things."""

import re
from dataclasses import replace

import pytest

from services.contract.options import StopAt
from services.reports.judgement.build import build
from services.reports.markup import plain
from services.reports.text import markdown
from services.vocabulary import Decide, ItemError, JobStatus, Mode, Outcome
from tests.unit.reports.rows import A, B, failed, job, judge, opinion, ranked, ranking, row, silent, standing, votes


def tables(text: str) -> list[list[str]]:
    """The tables of a page, each as its lines."""
    return [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]


def rows_of(text: str, first: str) -> list[list[str]]:
    """The rows of all tables that begin with `first`, without it."""
    lines = [line for table in tables(text) for line in table if line.startswith(f"| {first} ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")][1:] for line in lines]


def cells(text: str, first: str) -> list[str]:
    """The one row that begins with `first`, without it."""
    (row,) = rows_of(text, first)
    return row


def test_the_recovery_of_both_orders_stands_in_one_table() -> None:
    # a judge that always takes the first slot, and whose probabilities are right on 9 of 12
    rows = [row(i, A if i % 4 else B, label=A if i % 2 else B) for i in range(12)]
    text = markdown(build(job(), 12, rows))
    assert cells(text, "most frequent label, always")[:2] == ["6 of 12", "50.0 %"]
    assert cells(text, "one order, as given")[:2] == ["6 of 12", "50.0 %"]
    assert cells(text, "one order, swapped")[:2] == ["6 of 12", "50.0 %"]
    assert cells(text, "both orders: the verdict")[:2] == ["9 of 12", "75.0 %"]
    assert "single order is right on 6 of 12 items on average, the verdict out of both on 9: 3 more." in text
    assert "first slot: 100.0 % (24 of 24, 95 %" in text
    assert "gave the same answer: 0.0 % (0 of 12, 95 %" in text


def test_both_orders_may_also_do_worse() -> None:
    rows = [row(i, B, opinion(winner=B, votes=votes(A, A), first_slot=1), label=A) for i in range(4)]
    assert "right on 4 of 4 items on average, the verdict out of both on 0: 4 fewer." in markdown(build(job(), 4, rows))


def test_a_job_without_one_success_shows_dashes_not_zeros() -> None:
    report = build(job(status=JobStatus.FAILED), 2, [failed(i, ItemError.TRUNCATED) for i in range(2)])
    text = markdown(report)
    assert cells(text, "side A") == ["0", "0", "0", "–", "–", "0", "–", "–"]
    assert cells(text, "ties") == ["0 of 0", "–", "–"]
    assert cells(text, "failed items")[0] == "2 of 2"
    assert cells(text, "  truncated")[0] == "2"
    assert "nan" not in text


def test_forced_answers_are_shown_where_they_were_not_asked_for() -> None:
    rows = [row(0, A, opinion(forced=1)), row(1)]
    assert cells(markdown(build(job(judge(mode=Mode.REASON)), 2, rows)), "answers that had to be forced")[0] == "1 of 4"
    assert "had to be forced" not in markdown(build(job(judge(mode=Mode.DIRECT)), 2, rows))


def test_notes_are_listed() -> None:
    report = build(job(), 3, [row(0)])
    text = markdown(report)
    assert report.notes
    for note in report.notes:
        assert f"- {note.message}" in text


def test_samples_without_an_answer_are_listed_by_what_became_of_them() -> None:
    outcomes = {Outcome.DECIDED: 1, Outcome.TIE: 1, Outcome.TRUNCATED: 2, Outcome.FAILED: 1}
    text = markdown(build(job(), 1, [row(0, A, opinion(invalid=3, outcomes=outcomes))]))
    assert cells(text, "samples with an answer")[:2] == ["2 of 5", "40.0 %"]
    assert cells(text, "  without: truncated")[0] == "2"
    assert cells(text, "  without: failed")[0] == "1"
    assert "without: unparseable" not in text


def test_what_early_stopping_spared_is_shown_where_it_could() -> None:
    rows = [row(0, A, opinion(stopped="certain")), row(1, A, opinion(stopped="confident")), row(2), row(3)]
    text = markdown(build(job(judge(samples=4, early_stop=StopAt(confidence=0.95))), 4, rows))
    assert "up to 4 samples an order until 95 % sure" in text
    assert cells(text, "items settled before the last sample")[0] == "1 of 4"
    assert cells(text, "items stopped by the sequential test")[0] == "1 of 4"
    assert ", 4 samples an order, decided" in markdown(build(job(judge(samples=4, early_stop="never")), 4, rows))
    assert "sequential test" not in markdown(build(job(), 4, rows))


def test_a_panel_has_a_row_a_judge() -> None:
    failure = silent(ItemError.RUNTIME_ERROR, Outcome.FAILED, judge="other")
    rows = [
        row(0, A, opinion(judge="one"), opinion(judge="other"), label=A, disagreement=0.0),
        row(1, A, opinion(judge="one"), opinion(judge="other", winner=B), label=A, disagreement=1.0),
        row(2, A, opinion(judge="one"), failure, label=B),
    ]
    judges = (judge("one"), judge("other", mode=Mode.REASON, decide=Decide.SCORES))
    text = markdown(build(job(*judges), 3, rows))
    assert "3 of 3 items heard by a panel of 2 judges:" in text
    assert "- other, with reasoning, in both orders, decided by scores." in text
    assert "All judges gave the same winner: 50.0 % (1 of 2, 95 %" in text
    assert "Two judges differ with a chance of 50.0 % on average." in text
    assert "Decided without an answer of every judge: 33.3 % (1 of 3, 95 %" in text
    labels, agreeing, samples = rows_of(text, "other")
    assert labels[:2] == ["1 of 2", "50.0 %"]
    assert agreeing == ["2 of 3 (66.7 %)", "1 of 2 (50.0 %)", "4 of 4 (100.0 %)", "0 of 2 (0.0 %)", "–"]
    assert samples == ["4", "0", "0", "0", "0", "0", "2", "0", "0 of 4 (0.0 %)"]
    assert "- other: 6 calls, 300 prompt tokens (25.0 % cached), 6 completion tokens." in text
    assert "## Position" not in text
    assert "samples with an answer" not in text


def test_notes_about_a_judge_name_it_in_a_panel_only() -> None:
    alone = markdown(build(job(), 20, [row(i) for i in range(20)]))
    several = [opinion(judge="one"), opinion(judge="other", votes=votes(A, A), first_slot=1)]
    panel = markdown(build(job(judge("one"), judge("other")), 20, [row(i, A, *several) for i in range(20)]))
    assert "\n- Single answers lean to the first slot, whatever stands in it." in alone
    assert "\n- one: Single answers lean to the first slot, whatever stands in it." in panel


def test_items_with_more_candidates_show_systems_grades_and_their_best() -> None:
    reached = standing(3, {(0, 1): 1.0, (0, 2): 1.0, (1, 2): 0.5})
    said = ranking({(0, 1): 1.0, (0, 2): 1.0, (1, 2): 0.5}, [votes(A, A)] * 3, 3, grades=(4.5, 2.0, 1.0), first_slot=3)
    text = markdown(build(job(), 2, [ranked(i, reached, said, systems=("x", "y", "z"), label=i) for i in range(2)]))
    won, graded = rows_of(text, "x")
    assert won[:4] == ["4", "0", "0", "100.0 %"]
    assert graded == ["smollm2", "4.50", "2"]
    assert "side A" not in text
    assert "Side A" not in text
    assert cells(text, "best of several: the verdict")[:2] == ["1 of 2", "50.0 %"]
    assert cells(text, "best of several: most frequent label, always")[:2] == ["1 of 2", "50.0 %"]
    assert not rows_of(text, "most frequent label, always")


def test_hostile_names_leave_every_table_in_shape() -> None:
    names = ["a|b", "line\nbreak", "\x1b[31mred", "\ud800", "<script>", "x" * 500, "# heading", "`code`"]
    judges = [judge(name) for name in names]
    rows = [
        row(i, A, *(opinion(judge=judge.name, grades=(1.0, 2.0)) for judge in judges), systems=(name, "base"), label=A)
        for i, name in enumerate(names)
    ]
    for panel in (judges, judges[:1]):
        heard = [replace(one, opinions=one.opinions[: len(panel)]) for one in rows]
        text = markdown(build(job(*panel, name="evil\n# forged\n| a |"), len(rows), heard))
        text.encode("utf-8")
        assert "\x1b" not in text
        assert "<script>" not in text
        assert "x" * 100 not in text
        assert [line for line in text.splitlines() if line.startswith("# ")] == [text.splitlines()[0]]
        for table in tables(text):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("http://evil.example/x", "http\\://evil.example/x"),
        ("HTTPS://WWW.evil.example", "HTTPS\\://WWW\\.evil.example"),
        ("www.evil.example", "www\\.evil.example"),
        ("e@x.com, @user", "e\\@x.com, \\@user"),
        ("&lt;b&gt;", "\\&lt;b\\&gt;"),
        ("~~strike~~", "\\~\\~strike\\~\\~"),
        ("![i](x)|", "!\\[i\\](x)\\|"),
        ("", '""'),
        (" \x1b", '"  "'),
        ("gpt-4.1: a b", "gpt-4.1: a b"),
    ],
)
def test_names_are_shown_as_they_are_called_and_never_acted_on(name: str, shown: str) -> None:
    assert plain(name) == shown


def test_the_cost_of_reading_again_is_none() -> None:
    rows = [row(0, calls=0, prompt_tokens=0, cached_tokens=0, completion_tokens=0)]
    for judges in ([judge()], [judge(), judge("other")]):
        text = markdown(build(job(*judges, reread_of="job_0"), 1, rows))
        assert "## Cost\n\nNo runtime was asked: what job_0 heard was read again." in text
        assert "calls" not in text.partition("## Cost")[2]
