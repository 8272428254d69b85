"""The text of a report shows what the report holds, whatever callers call their things."""

import re

from services.reports.build import build
from services.reports.text import markdown
from services.vocabulary import ItemError, JobStatus, Mode
from tests.unit.reports.rows import A, B, failed, job, opinion, row, votes


def tables(text: str) -> list[list[str]]:
    """The tables of a page, each as its lines."""
    return [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]


def cells(text: str, first: str) -> list[str]:
    """The row of a table that begins with `first`, without it."""
    (line,) = (line for table in tables(text) for line in table if line.startswith(f"| {first} "))
    return [cell.strip() for cell in line.strip("|").split(" | ")][1:]


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
    rows = [row(i, B, opinion(votes=votes(A, A), first_slot=1), label=A) for i in range(4)]
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
    assert cells(markdown(build(job(mode=Mode.REASON), 2, rows)), "answers that had to be forced")[0] == "1 of 4"
    assert "had to be forced" not in markdown(build(job(mode=Mode.DIRECT), 2, rows))


def test_notes_are_listed() -> None:
    report = build(job(), 3, [row(0)])
    text = markdown(report)
    assert report.notes
    for note in report.notes:
        assert f"- {note.message}" in text


def test_hostile_names_leave_every_table_in_shape() -> None:
    names = ["a|b", "line\nbreak", "\x1b[31mred", "\ud800", "<script>", "x" * 500, "# heading", "`code`"]
    rows = [row(i, A, systems=(name, "base")) for i, name in enumerate(names)]
    text = markdown(build(job(name="evil\n# forged\n| a |"), len(rows), rows))
    text.encode("utf-8")
    assert "\x1b" not in text
    assert "<script>" not in text
    assert "x" * 100 not in text
    assert [line for line in text.splitlines() if line.startswith("# ")] == [text.splitlines()[0]]
    for table in tables(text):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
