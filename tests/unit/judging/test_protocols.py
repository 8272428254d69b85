"""Every family asks and reads as its golden cases say; sdrm asks what its model was trained on."""

import json
import re
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.foundation.errors import Misconfigured
from services.judging import protocols
from services.judging.protocol import Message, Pair
from services.judging.registry import UnknownProtocol, names, option_names, protocol
from services.vocabulary import FinishReason

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


def golden() -> list[Any]:
    cases = []
    for name in names():
        lines = (FAMILIES / name / "golden.jsonl").read_text(encoding="utf-8").splitlines()
        cases += [pytest.param(name, json.loads(line), id=f"{name}-{i}") for i, line in enumerate(lines, start=1)]
    return cases


def shared(name: str) -> list[dict[str, Any]]:
    """Further cases from beside the project, where they are."""
    path = SHARED / name
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()] if path.exists() else []


def text_of(holder: dict[str, Any], key: str) -> str:
    parts = holder.get(f"{key}_parts", [holder.get(key)])
    return "".join(part if isinstance(part, str) else part["repeat"][0] * part["repeat"][1] for part in parts)


def pair_of(context: list[dict[str, Any]], first: str, second: str) -> Pair:
    return Pair(tuple(Message(turn["role"], text_of(turn, "content")) for turn in context), first, second)


@pytest.mark.parametrize(("name", "case"), golden())
def test_golden(name: str, case: dict[str, Any]) -> None:
    if "ask" in case:
        pair = pair_of(**case["ask"])
        judge = protocol(name)
        assert [{"role": m.role, "content": m.content} for m in judge.messages(pair)] == case["messages"]
        assert judge.injection_suspected(pair) == case["injection_suspected"]
    else:
        judge = protocol(name, {"labels": case["labels"]} if "labels" in case else {})
        reading = json.loads(json.dumps(judge.read(case["read"], FinishReason(case["finish_reason"])).as_json()))
        assert {field: reading[field] for field in case["reading"]} == case["reading"]


READINGS = [case for case in shared("readings.jsonl") if case["protocol"] in names()]


@pytest.mark.parametrize("case", READINGS, ids=itemgetter("id"))
def test_shared_readings(case: dict[str, Any]) -> None:
    reading = protocol(case["protocol"]).read(text_of(case, "completion"), FinishReason(case["finish_reason"]))
    assert {field: reading.as_json()[field] for field in case["expect"]} == case["expect"], case["why"]


@pytest.mark.parametrize("case", shared("hostile_candidates.jsonl"), ids=itemgetter("id"))
def test_shared_hostile_candidates(case: dict[str, Any]) -> None:
    pair = pair_of(case["context"], *(text_of(candidate, "content") for candidate in case["candidates"]))
    judge = protocol("sdrm")
    assert judge.injection_suspected(pair) == case["expect"]["injection_suspected"], case["why"]
    (message,) = judge.messages(pair)
    for text in (*(turn.content for turn in pair.context), pair.first, pair.second):
        assert text.strip() in message.content


def test_sdrm_asks_the_published_prompt() -> None:
    prompt = (FAMILIES / "sdrm" / "prompt.txt").read_text(encoding="utf-8")
    assert "".join(prompt.split()) == PUBLISHED
    assert prompt == prompt.strip()


def test_sdrm_asks_as_the_model_card_shows_it() -> None:
    pair = Pair((Message("user", "What is the capital of France?"),), "The capital of France is Paris.", "Lyon.")
    (message,) = protocol("sdrm").messages(pair)
    shown = """[Start of Context]<user>What is the capital of France?</user>[End of Context] [Start of Assistant A's
        Response]<assistant>The capital of France is Paris.</assistant>[End of Assistant A's Response] [Start of
        Assistant B's Response]<assistant>Lyon.</assistant>[End of Assistant B's Response]"""
    assert message.role == "user"
    assert "".join(shown.split()) in "".join(message.content.split())


DIRECTIVES = st.lists(st.sampled_from(["{context}", "{response_b}", "{", "}}", "%s", "{{x}}", "é", "\\1"])).map("".join)


@pytest.mark.parametrize("name", names())
@given(context=DIRECTIVES, first=DIRECTIVES, second=DIRECTIVES)
def test_caller_texts_arrive_untouched(name: str, context: str, first: str, second: str) -> None:
    (message,) = protocol(name).messages(Pair((Message("user", context),), first, second))
    (marked,) = protocol(name).messages(Pair((Message("user", "C0"),), "R1", "R2"))
    before, rest = marked.content.split("C0")
    between, rest = rest.split("R1")
    middle, after = rest.split("R2")
    assert message.content == before + context + between + first + middle + second + after


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
        pair = Pair((Message("user", texts[0]),), texts[1], texts[2])
        assert protocol("sdrm").injection_suspected(pair) is suspected


@pytest.mark.parametrize("text", ["<user " * 170_000, "<|" * 500_000, "[" * 1_000_000, "<user x" * 140_000])
def test_a_hostile_megabyte_is_searched_like_any_other_text(text: str) -> None:
    assert protocol("sdrm").injection_suspected(Pair((), text, "")) is False


def test_a_template_of_ones_own_has_markers_of_its_own() -> None:
    template = "### Task\n{context}\n### First\n{response_a}\n### Second\n{response_b}\n### Decide: {choices}"
    judge = protocol("prompted", {"template": template, "labels": ["1", "2", "tie"]})
    (message,) = judge.messages(Pair((Message("user", "q"),), "one", "two"))
    assert message.content.endswith("### First\none\n### Second\ntwo\n### Decide: 1, 2 or tie")
    assert judge.injection_suspected(Pair((), "x", "### second"))
    assert not judge.injection_suspected(Pair((), "x", "[Answer A]"))
    assert judge.verdict is not None
    assert judge.verdict.labels == ("1", "2")


@pytest.mark.parametrize(
    "options",
    [
        {"labels": ["A"]},
        {"labels": ["A", "a"]},
        {"labels": ["1", "10"]},
        {"labels": ["A", "B", "C"]},
        {"labels": ["A", " "]},
        {"template": "{context}"},
    ],
)
def test_options_that_make_no_judge_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match="prompted"):
        protocol("prompted", options)


def test_an_option_that_a_family_does_not_take_is_refused() -> None:
    assert option_names("prompted") == {"template", "labels"}
    with pytest.raises(Misconfigured, match="sdrm has no option labels"):
        protocol("sdrm", {"labels": ["A", "B"]})


def test_an_unknown_family_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UnknownProtocol, match=r"no protocol is called oracle; there are prompted, sdrm"):
        protocol("oracle")
