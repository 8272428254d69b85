"""The shipped anchors are well-formed, a set is named by what it holds, and a file that is wrong is told where."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.foundation.errors import Misconfigured
from services.reappraisal import anchors as module
from services.reappraisal.anchors import FEWEST, load_anchors

SHIPPED = Path(module.__file__).with_name("anchors.jsonl")
TURN = re.compile(
    r"SCENARIO:\n[^\n]+\n\nWrite a reappraisal of this scenario in two sentences maximum, "
    r"addressing the person in second person\."
)


def line(content: str = "SCENARIO", response: str = "Response.") -> dict[str, Any]:
    return {"context": [{"role": "user", "content": content}], "response": response}


def write(path: Path, lines: Sequence[object]) -> Path:
    """A file of anchors; strings stand in it as they are."""
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines), "utf-8")
    return path


def test_the_shipped_set_is_ten_scenarios_with_four_texts_each() -> None:
    anchors = load_anchors(None)
    assert len(anchors.texts) >= FEWEST
    contexts = Counter(anchor.context for anchor in anchors.texts)
    assert list(contexts.values()) == [4] * 10
    assert all(len(context) == 1 and context[0][0] == "user" and TURN.fullmatch(context[0][1]) for context in contexts)


def test_the_shipped_responses_are_distinct_and_have_one_or_two_sentences() -> None:
    responses = [anchor.response for anchor in load_anchors().texts]
    assert len(set(responses)) == len(responses)
    lengths = Counter(len(re.findall(r"[.!?](?:\s|$)", response)) for response in responses)
    assert lengths.keys() == {1, 2}
    assert min(lengths.values()) >= 10
    assert not any("\n" in response or response != response.strip() for response in responses)


def test_a_set_is_named_by_the_hash_of_its_lines_in_canonical_json() -> None:
    rows = [json.loads(text) for text in SHIPPED.read_text("utf-8").splitlines()]
    canonical = "\n".join(json.dumps(row, sort_keys=True, separators=(",", ":")) for row in rows)
    assert load_anchors().sha256 == sha256(canonical.encode()).hexdigest()


def test_another_layout_of_the_file_is_the_same_set(tmp_path: Path) -> None:
    rows = [line(response=f"Größe \u2028 {n}.") for n in range(FEWEST)]
    plain = load_anchors(write(tmp_path / "plain", rows))
    other = [
        json.dumps(dict(reversed(row.items())), ensure_ascii=False, separators=(" , ", " : ")) + "\r" for row in rows
    ]
    assert load_anchors(write(tmp_path / "other", other)) == plain
    unended = tmp_path / "unended"
    unended.write_bytes((tmp_path / "plain").read_bytes().rstrip(b"\n"))
    assert load_anchors(unended) == plain


def test_other_texts_or_another_order_are_another_set(tmp_path: Path) -> None:
    rows = [line(response=f"{n}.") for n in range(FEWEST)]
    sets = [rows, rows[::-1], [*rows, line()], [line("other", "0."), *rows[1:]]]
    assert len({load_anchors(write(tmp_path / "set", lines)).sha256 for lines in sets}) == len(sets)


def test_a_conversation_of_several_turns_keeps_them(tmp_path: Path) -> None:
    turns = [("user", "One."), ("assistant", " Two. "), ("user", "Three.")]
    long = {"context": [{"role": role, "content": content} for role, content in turns], "response": "R"}
    (first, *_) = load_anchors(write(tmp_path / "set", [long, *[line()] * FEWEST])).texts
    assert (first.context, first.response) == (tuple(turns), "R")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", "the line: Invalid JSON"),
        ("[]", "the line: Input should be an object"),
        ("{", "the line: Invalid JSON"),
        ({"context": line()["context"]}, "response: Field required"),
        ({"response": "R"}, "context: Field required"),
        (line() | {"label": 1}, "label: Extra inputs"),
        (line(response=" \n"), "response: String should match"),
        (line(content=""), "context/0/content: String should match"),
        (line() | {"response": 5}, "response: Input should be a valid string"),
        (line() | {"context": []}, "context: .*messages alternate"),
        (line() | {"context": line()["context"] * 2}, "context: .*messages alternate"),
        (line() | {"context": [{"role": "assistant", "content": "A"}]}, "context: .*messages alternate"),
        (
            line() | {"context": [*line()["context"], {"role": "assistant", "content": "A"}]},
            "context: .*messages alternate",
        ),
        (line() | {"context": [{"role": "system", "content": "S"}]}, "context/0/role: Input should be"),
        (r'{"context": [{"role": "user", "content": "\ud800"}], "response": "R"}', "the line: Invalid JSON"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, wrong: object, message: str) -> None:
    path = write(tmp_path / "set", [*[line()] * FEWEST, wrong, line()])
    with pytest.raises(Misconfigured, match=rf"set, line {FEWEST + 1}: {message}"):
        load_anchors(path)


def test_bytes_that_are_no_text_are_a_wrong_line(tmp_path: Path) -> None:
    path = write(tmp_path / "set", [line()] * FEWEST)
    path.write_bytes(b'{"context": [], "response": "\xff"}\n' + path.read_bytes())
    with pytest.raises(Misconfigured, match="set, line 1: the line: Invalid JSON"):
        load_anchors(path)


def test_too_few_texts_and_no_file_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=f"set are {FEWEST - 1} texts, fewer than {FEWEST}"):
        load_anchors(write(tmp_path / "set", [line()] * (FEWEST - 1)))
    with pytest.raises(Misconfigured, match="none cannot be read: No such file"):
        load_anchors(tmp_path / "none")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["context", "response", "role", "content", "user"]), inner, max_size=3)
    ),
)
turns = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=3)})
lines = st.fixed_dictionaries({"context": st.lists(turns, max_size=4), "response": st.text(max_size=3)})


@given(st.binary(max_size=20) | (json_values | lines).map(lambda value: json.dumps(value).encode()))
def test_any_line_is_an_anchor_or_a_fault_with_its_place(tmp_path_factory: pytest.TempPathFactory, odd: bytes) -> None:
    path = write(tmp_path_factory.getbasetemp() / "odd", [line()] * FEWEST)
    path.write_bytes(odd.replace(b"\n", b"") + b"\n" + path.read_bytes())
    try:
        first = load_anchors(path).texts[0]
    except Misconfigured as error:
        assert error.message.startswith(f"the anchors {path}, line 1: ")
    else:
        roles = [role for role, _ in first.context]
        assert roles == [("user", "assistant")[i % 2] for i in range(len(roles))]
        assert roles[-1] == "user"
        assert all(text.strip("\t\n\r ") for text in (first.response, *(content for _, content in first.context)))
