"""The shipped families: sdrm asks what its model was trained on, prompted what its options say; further cases.

What every family keeps to is in tests/contracts/test_families.py.
"""

import json
import math
import re
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.foundation.errors import Misconfigured
from services.judging import protocols
from services.judging.__main__ import read
from services.judging.heard import hear_labels
from services.judging.protocol import Message, Showing
from services.judging.registry import UnknownProtocol, names, option_names, protocol
from services.judging.runtime import Completion
from services.vocabulary import FinishReason, Flag, Outcome

FAMILIES = Path(protocols.__file__).parent
SHARED = Path(__file__).parents[4] / "shared" / "cases"

# The prompt as the model card of opsd-genrm/SDRM-Qwen3-4B-mask70 gives it, less its white space.
PUBLISHED = re.sub(
    r"\s",
    "",
    """
    You are an impartial judge tasked with determining which of two assistant responses is better for the given context.
    Below is a context (a user query or a conversation between the user and an assistant) and two assistant responses
    to that context. [Start of Context]{context}[End of Context] [Start of Assistant A's Response]{response_a}[End of
    Assistant A's Response] [Start of Assistant B's Response]{response_b}[End of Assistant B's Response] Identify the
    quality dimensions that matter most for this specific task, then evaluate and compare the two assistant responses
    step by step across those dimensions. When correctness matters, solve the problem yourself and check each response
    for any errors. After your analysis, determine which response is better overall and provide your final verdict (A
    or B only) in <verdict>...</verdict>.
    """,
)


def shared(name: str) -> list[dict[str, Any]]:
    """Further cases from beside the project, where they are."""
    path = SHARED / name
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()] if path.exists() else []


def text_of(holder: dict[str, Any], key: str) -> str:
    parts = holder.get(f"{key}_parts", [holder.get(key)])
    return "".join(part if isinstance(part, str) else part["repeat"][0] * part["repeat"][1] for part in parts)


READINGS = [case for case in shared("readings.jsonl") if case["protocol"] in names()]


@pytest.mark.parametrize("case", READINGS, ids=itemgetter("id"))
def test_shared_readings(case: dict[str, Any]) -> None:
    line = {"completion": text_of(case, "completion"), "finish_reason": case["finish_reason"]}
    (reading,) = read(case["protocol"], {}, line)
    assert {field: reading[field] for field in case["expect"]} == case["expect"], case["why"]


@pytest.mark.parametrize("case", shared("hostile_candidates.jsonl"), ids=itemgetter("id"))
def test_shared_hostile_candidates(case: dict[str, Any]) -> None:
    context = tuple(Message(turn["role"], text_of(turn, "content")) for turn in case["context"])
    showing = Showing(context, tuple(text_of(candidate, "content") for candidate in case["candidates"]))
    judge = protocol("sdrm")
    assert judge.injection_suspected(showing) == case["expect"]["injection_suspected"], case["why"]
    (message,) = judge.messages(showing)
    for text in (*(turn.content for turn in showing.context), *showing.slots):
        assert text.strip() in message.content


def test_sdrm_asks_the_published_prompt() -> None:
    prompt = (FAMILIES / "sdrm" / "prompt.txt").read_text(encoding="utf-8")
    assert "".join(prompt.split()) == PUBLISHED
    assert prompt == prompt.strip()


def test_sdrm_asks_as_the_model_card_shows_it() -> None:
    context = (Message("user", "What is the capital of France?"),)
    (message,) = protocol("sdrm").messages(Showing(context, ("The capital of France is Paris.", "Lyon.")))
    shown = """[Start of Context]<user>What is the capital of France?</user>[End of Context] [Start of Assistant A's
        Response]<assistant>The capital of France is Paris.</assistant>[End of Assistant A's Response] [Start of
        Assistant B's Response]<assistant>Lyon.</assistant>[End of Assistant B's Response]"""
    assert message.role == "user"
    assert "".join(shown.split()) in "".join(message.content.split())


@pytest.mark.parametrize(
    ("text", "suspected"),
    [
        *(
            (f"x <|{token}|> y", True)
            for token in ("im_start", "im_sep", "fim_prefix", "eot_id", "reserved_special_token_7")
        ),
        *(
            (token, True)
            for token in ("<tool_call>", "</think>", "<user id='1'>", "</USER>", "<verdict/>", "< x <verdict>")
        ),
        *((marker, True) for marker in ("[start of context]", "[End of Assistant B's Response]")),
        *(
            (token, False)
            for token in ("<|user|>", "<s>", "[INST]", "<username>", "< user>", "&lt;user&gt;", "<|im_\u200bend|>")
        ),
        *((word, False) for word in ("Start of Context", "user", "verdict: A", "</thinking>")),
    ],
)
def test_injection_is_suspected_by_markers_tags_and_control_tokens(text: str, suspected: bool) -> None:
    for place in range(3):
        texts = ["plain"] * 3
        texts[place] = f"before {text} after"
        showing = Showing((Message("user", texts[0]),), (texts[1], texts[2]))
        assert protocol("sdrm").injection_suspected(showing) is suspected


def test_a_template_of_ones_own_has_markers_of_its_own() -> None:
    template = "### Task\n{context}\n### First\n{response_a}\n### Second\n{response_b}\n### Decide: {choices}"
    judge = protocol("prompted", {"template": template, "labels": ["1", "2", "tie"]})
    (message,) = judge.messages(Showing((Message("user", "q"),), ("one", "two")))
    assert message.content.endswith("### First\none\n### Second\ntwo\n### Decide: 1, 2 or tie")
    assert judge.injection_suspected(Showing((), ("x", "### second")))
    assert not judge.injection_suspected(Showing((), ("x", "[Answer A]")))
    assert judge.verdict is not None
    assert judge.verdict.labels.names == ("1", "2", "tie")


def test_a_rubric_of_ones_own_says_what_its_grades_mean() -> None:
    template = "Text: {context}\nReply: {response}\n{least} is wrong, {most} is right. Give {choices} in <score>."
    judge = protocol("prompted", {"template": template, "grades": 3})
    assert (judge.slots, judge.grades) == (1, (1, 3))
    (message,) = judge.messages(Showing((Message("user", "q"),), ("{most}",)))
    assert message.content.endswith("\nReply: {most}\n1 is wrong, 3 is right. Give 1, 2 or 3 in <score>.")


@pytest.mark.parametrize("grades", range(2, 10))
def test_every_grade_of_a_rubric_and_no_other_number_is_read(grades: int) -> None:
    judge = protocol("prompted", {"grades": grades})
    scores = [judge.read(f"<score>{number}</score>", FinishReason.STOP).scores for number in range(12)]
    assert scores == [(number,) if 1 <= number <= grades else () for number in range(12)]


QUESTION = "{context}\n### Answer\n{response}\n### Is it kind? Say {choices}: {least} is the least, {most} the most."


def test_grades_may_have_words_of_their_own() -> None:
    judge = protocol("prompted", {"template": QUESTION, "grades": ["No", "in part", "yes"]})
    assert (judge.slots, judge.grades) == (1, (1, 3))
    (message,) = judge.messages(Showing((Message("user", "q"),), ("a",)))
    assert message.content.endswith("### Is it kind? Say No, in part or yes: No is the least, yes the most.")
    assert judge.verdict is not None
    assert judge.verdict.labels.names == ("No", "in part", "yes")
    said = ["no", "**In part.**", "YES", "yes, in part", "not", "", "2"]
    scores = [judge.read(f"<score>{word}</score>", FinishReason.STOP).scores for word in said]
    assert scores == [(1,), (2,), (3,), (), (), (), ()]


@given(yes=st.integers(-30, 0), no=st.integers(-30, 0))
def test_of_no_and_yes_the_expected_grade_is_one_and_the_probability_of_yes(yes: int, no: int) -> None:
    form = protocol("prompted", {"template": QUESTION, "grades": ["no", "yes"]}).verdict
    assert form is not None
    completion = Completion("yes", FinishReason.LENGTH, 9, 0, 1, (("no", no), ("yes", yes)))
    heard = hear_labels(form, completion)
    assert heard.expected == pytest.approx(1 + math.exp(yes) / (math.exp(yes) + math.exp(no)))
    assert heard.reading.scores == ((2,) if yes > no else (1,))


def test_words_for_grades_are_no_names_of_slots() -> None:
    judge = protocol("prompted", {"template": QUESTION, "grades": ["A", "B"]})
    reading = judge.read("<score>B</score> <verdict>A</verdict>", FinishReason.STOP)
    assert (reading.scores, reading.winner, reading.seed_verdict) == ((2,), None, None)


@pytest.mark.parametrize("content", ["4", "**4**", "`4.`", "(4)", "“4”", "４", " \n4\n"])
def test_a_grade_may_stand_in_marks(content: str) -> None:
    reading = protocol("prompted", {"grades": 5}).read(f"Good. <score>{content}</score>", FinishReason.STOP)
    assert (reading.outcome, reading.winner, reading.scores) == (Outcome.DECIDED, None, (4,))


@pytest.mark.parametrize(
    "content", ["", "4/5", "4.5", "4.0", "+4", "04", "44", "four", "4 out of 5", "Score: 4", "4,5", "4 or 5", "٤", "IV"]
)
def test_anything_else_is_no_grade(content: str) -> None:
    reading = protocol("prompted", {"grades": 5}).read(f"Good. <score>{content}</score>", FinishReason.STOP)
    assert (reading.outcome, reading.scores, reading.rule) == (Outcome.UNPARSEABLE, (), "no_valid_block")


def test_the_last_of_several_grades_counts_and_disagreement_is_flagged() -> None:
    judge = protocol("prompted", {"grades": 5})
    reading = judge.read("<score>2</score> or <score>x</score> rather <score>3</score>", FinishReason.STOP)
    assert (reading.scores, reading.flags) == ((3,), {Flag.CONFLICTING})
    assert [(seen.text, seen.valid) for seen in reading.seen] == [("2", True), ("x", False)]
    assert judge.read("<score>3</score> <score>3</score>", FinishReason.STOP).flags == set()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        *(
            ({"labels": labels}, "labels are two plain names")
            for labels in (["A"], ["A", "a"], ["1", "10"], ["A", " "])
        ),
        *(({"labels": labels}, "labels are two plain names") for labels in (["A", "B", "C"], [], ["T", "U", "tie"])),
        *(({"labels": labels}, "labels are two plain names") for labels in (["A.", "B"], ["Equal", "B", "tie"])),
        *(({"labels": labels}, "should be|not allowed") for labels in ("AB", [1, 2], 7)),
        *(({"grades": grades}, "2 to 9 grades") for grades in (-1, 0, 1, 10)),
        *(({"grades": grades}, "valid integer") for grades in (True, 5.0, "5", [1, 2])),
        ({"grades": ["no", "yes"]}, "need a template"),
        *(({"template": QUESTION, "grades": grades}, "2 to 9 grades") for grades in ([], ["yes"], list("abcdefghij"))),
        *(
            ({"template": QUESTION, "grades": grades}, "plain ones, none of which begins with another")
            for grades in (
                ["no", "no"],
                ["no", "NO"],
                ["no", "not at all"],
                ["no", ""],
                ["no.", "yes"],
                ["no", "(yes)"],
            )
        ),
        ({"template": "{context}", "grades": ["no", "yes"]}, "no slot for response"),
        ({"labels": ["A", "B"], "grades": 5}, "give one of them"),
        ({"template": "{context}"}, "no slot for response_a, response_b"),
        ({"template": "{context} {response_a} {response_b}", "grades": 5}, "no slot for response"),
        ({"template": ""}, "no slot for context, response_a, response_b"),
    ],
)
def test_options_that_make_no_judge_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Misconfigured, match=f"prompted cannot be made with these options: (.|\n)*({complaint})"):
        protocol("prompted", options)


def test_an_option_that_a_family_does_not_take_is_refused() -> None:
    assert option_names("prompted") == {"template", "labels", "grades"}
    with pytest.raises(Misconfigured, match="sdrm has no option labels"):
        protocol("sdrm", {"labels": ["A", "B"]})


def test_an_unknown_family_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UnknownProtocol, match=f"no protocol is called oracle; there are {', '.join(names())}"):
        protocol("oracle")
