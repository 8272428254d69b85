"""The shared reading rules, and that no completion can slow them down."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.judging.reading import (
    LabelSet,
    VerdictForm,
    before_label,
    label_start,
    read_verdict,
    seed_verdict,
    unfinished,
)
from services.vocabulary import FinishReason, Flag, Outcome, Winner

AB = LabelSet()
WITH_TIE = LabelSet(tie=True)
PARTS = st.sampled_from(
    [
        "<verdict>",
        "</verdict>",
        "<VERDICT >",
        "A",
        "B",
        " ",
        "\n",
        "tie",
        ".",
        "<think>",
        "</think>",
        "x",
        "**",
        "A or B",
    ]
)
COMPLETIONS = st.lists(st.one_of(PARTS, st.text(max_size=3)), max_size=20).map("".join)
FINISHES = st.sampled_from(FinishReason)


def read(text: str, finish: FinishReason = FinishReason.STOP, labels: LabelSet = AB, thinks: bool = False):
    return read_verdict(text, finish, VerdictForm("verdict", labels), thinks=thinks)


@pytest.mark.parametrize(
    "content",
    [
        *(
            "A",
            "a",
            " \r\n A\t",
            "**A**",
            "__A__",
            "`A`",
            "```A```",
            '"A"',
            "'A'",
            "“A”",
            "«A»",
            "「A」",
            "(A)",
            "[A]",
            "{A}",
        ),
        *("【A】", "<A>", "A.", "A。", "**A**.", "**A.**", "(“A”.)", "[Answer A.]", "Ａ", "Ａ．", "𝐀", "（Ａ）"),
        *(
            "Assistant A",
            "assistant a",
            "RESPONSE A",
            "Answer: A",
            "Answer A",
            "Option (A)",
            "Answer:A",
            "**Answer**: *A*",
        ),
        *("Response\u00a0A", "\u3000A\u2028", "(" * 1000 + "A" + ")" * 1000),
    ],
)
def test_marks_around_a_label_come_off(content: str) -> None:
    assert read(f"So: <verdict>{content}</verdict>").winner is Winner.A


@pytest.mark.parametrize(
    "content",
    [
        *(
            "",
            " ",
            ".",
            "...",
            "A..",
            "A.。",
            "~~A~~",
            "A or B",
            "Not A",
            "A is better than B",
            "A/B",
            "N/A",
            "AB",
            "A B",
        ),
        *("A\u200b", "\ufeffA", "А", "A!", "A?", "A:", "AssistantA", "Assistant", "Judge A", "Answer: Option A", "tie"),
        *("Both", "A\u0301", "1", "&lt;A&gt;", "x" * 1000 + "A"),
    ],
)
def test_anything_else_is_no_label(content: str) -> None:
    reading = read(f"So: <verdict>{content}</verdict>")
    assert (reading.outcome, reading.winner, reading.rule) == (Outcome.UNPARSEABLE, None, "no_valid_block")


@pytest.mark.parametrize("content", ["Tie", "tie.", "EQUAL", "**Both**", "(neither)"])
def test_a_tie_is_an_answer_where_the_labels_have_it(content: str) -> None:
    assert read(f"<verdict>{content}</verdict>", labels=WITH_TIE).outcome is Outcome.TIE


def test_labels_may_have_other_names() -> None:
    numbered = LabelSet("1", "2")
    assert read("<verdict>Response 2</verdict>", labels=numbered).winner is Winner.B
    assert read("<verdict>A</verdict>", labels=numbered).winner is None


@pytest.mark.parametrize(
    "tag", ["< verdict>", "</ verdict>", "<verdict x='1'>", "<verdicts>", "<verdıct>", "&lt;verdict>"]
)
def test_what_is_not_quite_a_tag_is_none(tag: str) -> None:
    assert read(f"{tag}A</verdict>").rule == "no_block"


def test_a_block_runs_from_the_last_opening_tag() -> None:
    text = "I write <verdict> now: <verdict>B</verdict> and </verdict> again"
    reading = read(text)
    assert reading.winner is Winner.B
    assert reading.span == (text.index("B<"), text.index("B<") + 1)


def test_a_reading_says_where_it_read_and_what_else_it_saw() -> None:
    text = "<verdict>...</verdict> <verdict>A</verdict> <verdict>B</verdict>"
    reading = read(text)
    assert text[slice(*reading.span)] == "B"
    assert [(seen.text, seen.valid) for seen in reading.seen] == [("...", False), ("A", True)]
    assert reading.flags == {Flag.CONFLICTING}


def test_an_unclosed_block_counts_only_where_a_stop_string_may_have_eaten_its_end() -> None:
    assert read("<verdict>A", FinishReason.STOP).rule == "verdict_block_unclosed"
    assert read("<verdict>A", FinishReason.LENGTH).outcome is Outcome.TRUNCATED
    assert read("<verdict>A is my choice", FinishReason.STOP).outcome is Outcome.UNPARSEABLE


@pytest.mark.parametrize(
    ("finish", "outcome"),
    [
        (FinishReason.STOP, Outcome.UNPARSEABLE),
        (FinishReason.LENGTH, Outcome.TRUNCATED),
        (FinishReason.ABORT, Outcome.ABORTED),
    ],
)
@pytest.mark.parametrize(
    ("text", "thinks"),
    [
        ("<verdict>A</verdict>", True),
        ("<think>hm <verdict>A</verdict>", False),
        ("hm</think> no: <think> <verdict>A</verdict>", True),
    ],
)
def test_no_verdict_is_read_out_of_unfinished_thinking(
    text: str, thinks: bool, finish: FinishReason, outcome: Outcome
) -> None:
    reading = read(text, finish, thinks=thinks)
    assert (reading.outcome, reading.winner, reading.flags) == (outcome, None, {Flag.THINK_UNCLOSED})


def test_a_call_that_was_aborted_decides_nothing() -> None:
    assert read("<verdict>A</verdict>", FinishReason.ABORT).outcome is Outcome.ABORTED


@given(text=COMPLETIONS, finish=FINISHES, labels=st.sampled_from([AB, WITH_TIE]), thinks=st.booleans())
def test_every_text_has_a_reading_and_only_answers_have_a_winner(
    text: str, finish: FinishReason, labels: LabelSet, thinks: bool
) -> None:
    reading = read(text, finish, labels, thinks)
    answered = reading.outcome in (Outcome.DECIDED, Outcome.TIE)
    assert answered == (reading.winner is not None) == (reading.span is not None)
    assert (reading.outcome is Outcome.TIE) == (reading.winner is Winner.TIE)
    if answered:
        assert labels.match(text[slice(*reading.span)]) is reading.winner


@given(text=COMPLETIONS, finish=FINISHES, thinks=st.booleans())
def test_what_stands_before_a_label_ends_where_the_label_begins(text: str, finish: FinishReason, thinks: bool) -> None:
    reading = read(text, finish, AB, thinks)
    if reading.span is not None:
        assert reading.winner is not None
        before = before_label(text, reading.span, AB)
        assert text.startswith(before)
        assert reading.span[0] <= len(before) < reading.span[1]
        assert unicodedata.normalize("NFKC", text[len(before)]).upper() == reading.winner


@pytest.mark.parametrize(
    ("content", "start"),
    [
        *(
            ("A", 0),
            (" **A**.", 3),
            ("Option (A)", 8),
            ("Answer: A.", 8),
            ("Ａ", 0),
            ("(" * 1000 + "A" + ")" * 1000, 1000),
        ),
        *(("neither of them", 0), ("", 0)),
    ],
)
def test_a_label_begins_behind_marks_and_naming(content: str, start: int) -> None:
    assert label_start(AB, content) == start


def test_a_longer_label_begins_at_its_first_letter() -> None:
    assert label_start(LabelSet("First", "Second"), "\n*Answer: second*") == len("\n*Answer: ")


@given(before=COMPLETIONS, letter=st.sampled_from("AB"), after=st.text("xyz \n", max_size=5))
def test_a_last_word_in_tags_is_always_heard(before: str, letter: str, after: str) -> None:
    reading = read(f"{before}</think><verdict>{letter}</verdict>{after}")
    assert reading.winner == letter


@given(text=COMPLETIONS)
def test_the_loose_rule_is_the_published_one(text: str) -> None:
    blocks = re.findall(r"<verdict>(.*?)</verdict>", text, re.DOTALL)
    words = (re.findall(r"\b(A|B)\b", blocks[-1]) if blocks else []) or re.findall(r"\b(A|B)\b", text)
    assert seed_verdict(text) == (words[-1] if words else None)


@pytest.mark.parametrize(
    "text",
    [
        *("<verdict>" * 110_000, "<verdict>(" * 100_000, "<verdict" + " " * 1_000_000, "<verdict>A" * 100_000),
        *("(" * 1_000_000, "<verdict>" + "(" * 1_000_000 + "</verdict>", "<" * 1_000_000, "A " * 500_000),
        *("<think>" * 150_000, "</think>" * 130_000, "<verdict>" + "a\u0316\u0301" * 300_000 + "</verdict>"),
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_megabyte_is_read_like_any_other_text(text: str) -> None:
    # A rule that looked at the rest of the text from each of its starts would need hours here.
    reading = read(text, FinishReason.LENGTH)
    assert reading.outcome is Outcome.TRUNCATED


@pytest.mark.parametrize(
    ("text", "thinks", "ready"),
    [
        ("", False, ""),
        ("  \n", False, ""),
        ("B seems  ", False, "B seems\n\n"),
        ("", True, "\n</think>\n\n"),
        ("Let me see", True, "Let me see\n</think>\n\n"),
        ("<think>Let me", False, "<think>Let me\n</think>\n\n"),
        ("hm</think>B it is", True, "hm</think>B it is\n\n"),
        ("B it is.\n\n<verdict>", False, "B it is.\n\n"),
        ("B it is.\n\n<Verdict >B", False, "B it is.\n\n"),
        ("I close with <verdict> then. First", False, "I close with <verdict> then. First\n\n"),
        ("<verdict>A or B</verdict>", False, "<verdict>A or B</verdict>\n\n"),
    ],
)
def test_an_unfinished_text_is_made_ready_for_a_forced_verdict(text: str, thinks: bool, ready: str) -> None:
    assert unfinished(text, VerdictForm("verdict", AB), thinks=thinks) == ready
