"""Items: every rule of an upload, each with the line, the pointer and the code that a caller sees."""

import base64
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.foundation.errors import Fault
from services.jobs.intake import LONGEST_ITEM, Item, ItemReader, Upload, custom_id_hash
from services.jobs.items import Comparisons

GOOD: dict[str, Any] = {
    "custom_id": "q1",
    "context": [{"role": "user", "content": "Why?"}],
    "candidates": [{"content": "Because.", "system": "ours"}, {"content": ""}],
}
USER = {"role": "user", "content": "a"}
ASSISTANT = {"role": "assistant", "content": "b"}


def good(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


def read(body: bytes, candidates: int | None = None) -> list[Item | Fault]:
    return list(Upload(io.BytesIO(body), ItemReader(Comparisons(candidates))))


def only(body: bytes, candidates: int | None = None) -> Item | Fault:
    (item,) = read(body, candidates)
    return item


def line(item: object) -> bytes:
    return json.dumps(item).encode()


def faults(items: list[Item | Fault]) -> list[tuple[int | None, str]]:
    return [(item.line, item.code) for item in items if isinstance(item, Fault)]


def test_an_item_is_kept_exactly_as_sent() -> None:
    sent = ' { "custom_id":"\\u0071\\u0000\\ud835" ,"context":[{"content":"é\\n","role":"user"}],"candidates":[{"content":"a"}\t,{"content":"b","system":null}] , "label":"tie", "cluster":"c\u2028", "metadata":{"n":1e2}}'  # noqa: E501 - one line, as in an upload
    item = only(sent.encode())
    assert isinstance(item, Item)
    assert item.input == sent.strip()
    assert item.custom_id == '"q\\u0000\\ud835"'
    assert item.custom_id_hash == custom_id_hash("q\0\ud835")
    assert json.loads(item.facets) == {"label": "tie", "cluster": "c\u2028", "systems": [None, None]}


def test_lines_end_with_lf_alone_and_blank_ones_count() -> None:
    body = b"\xef\xbb\xbf" + line(good()) + b"\r\n\n \t\r\n" + line(good(custom_id="a\u2028b")) + b"\n\n"
    first, second = read(body)
    assert (first.place, second.place) == (1, 4) if isinstance(first, Item) and isinstance(second, Item) else False


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"custom_id": "a", "scenario": "b"}, "an item has no such field, and needs context, candidates"),
        (good(id=1), "an item has no such field"),
        ({"custom_id": "a"}, "an item needs context, candidates"),
    ],
)
def test_a_wrong_or_missing_field_is_told_with_all_that_are_missing(item: dict[str, Any], message: str) -> None:
    (fault,) = read(line(item))
    assert isinstance(fault, Fault)
    assert fault.message == message


@pytest.mark.parametrize("body", [b"", b"\xef\xbb\xbf", b"\n\n", b" \t\r\n \r"])
def test_nothing_but_blanks_gives_nothing(body: bytes) -> None:
    assert read(body) == []


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (b'{"a": "\xef\xbf\xff"}', "invalid_utf8", ""),
        (b'{"a": "\xed\xa0\xb5"}', "invalid_utf8", ""),
        (b"\xff\xfe{", "invalid_utf8", ""),
        (b"{", "invalid_json", ""),
        (b"\xef\xbb\xbf\xef\xbb\xbf" + line(GOOD), "invalid_json", ""),
        (line(GOOD) + b"\r" + line(GOOD), "invalid_json", ""),
        (b'{"custom_id": "a", "custom_id": "b"}', "invalid_json", ""),
        (b'{"custom_id": "a", "metadata": {"x": [NaN]}}', "non_finite_number", "/metadata/x/0"),
        (b'{"x": 1e400}', "non_finite_number", "/x"),
        (b"[]", "not_an_object", ""),
        (b"null", "not_an_object", ""),
        (line(good(id=1)), "unknown_field", "/id"),
        (line({"id/~": 1}), "unknown_field", "/id~1~0"),
        (line(good(**{"x" * 1000: 1})), "unknown_field", ""),
        (b"{}", "missing_field", "/custom_id"),
        (line({"custom_id": "a", "candidates": []}), "missing_field", "/context"),
        (line({"custom_id": 5, "context": 5}), "missing_field", "/candidates"),
        (line(good(custom_id=None)), "invalid_value", "/custom_id"),
        (line(good(custom_id=7)), "invalid_value", "/custom_id"),
        (line(good(custom_id="")), "invalid_value", "/custom_id"),
        (line(good(custom_id="x" * 513)), "invalid_value", "/custom_id"),
        (line(good(context={})), "invalid_value", "/context"),
        (line(good(context=[])), "invalid_value", "/context"),
        (line(good(context=["a"])), "invalid_value", "/context/0"),
        (line(good(context=[ASSISTANT])), "invalid_value", "/context/0/role"),
        (line(good(context=[{"content": "a"}])), "invalid_value", "/context/0/role"),
        (line(good(context=[USER, ASSISTANT])), "invalid_value", "/context"),
        (line(good(context=[USER, USER])), "invalid_value", "/context/1/role"),
        (line(good(context=[{"role": "user"}])), "invalid_value", "/context/0/content"),
        (line(good(context=[{"role": "user", "content": None}])), "invalid_value", "/context/0/content"),
        (line(good(context=[{"role": "user", "content": " \u3000\n"}])), "invalid_value", "/context/0/content"),
        (line(good(context=[{**USER, "name": "x"}])), "invalid_value", "/context/0/name"),
        (line(good(candidates="ab")), "invalid_value", "/candidates"),
        (line(good(candidates=[{"content": "a"}])), "invalid_value", "/candidates"),
        (line(good(candidates=[{"content": "a"}] * 17)), "invalid_value", "/candidates"),
        (line(good(candidates=["a", "b"])), "invalid_value", "/candidates/0"),
        (line(good(candidates=[{"content": "a"}, {}])), "invalid_value", "/candidates/1/content"),
        (line(good(candidates=[{"content": 4}, {"content": "a"}])), "invalid_value", "/candidates/0/content"),
        (line(good(candidates=[{"content": "a", "system": 1}] * 2)), "invalid_value", "/candidates/0/system"),
        (line(good(candidates=[{"content": "a", "score": 1}] * 2)), "invalid_value", "/candidates/0/score"),
        (line(good(label="a")), "invalid_value", "/label"),
        (line(good(label=1)), "invalid_value", "/label"),
        (line(good(label=["A"])), "invalid_value", "/label"),
        (line(good(cluster=1)), "invalid_value", "/cluster"),
        (line(good(metadata=[])), "invalid_value", "/metadata"),
        (line(good(metadata="x")), "invalid_value", "/metadata"),
    ],
)
def test_every_fault_has_its_line_pointer_and_code(body: bytes, code: str, pointer: str) -> None:
    fault = only(body)
    assert isinstance(fault, Fault)
    assert (fault.line, fault.code, fault.pointer) == (1, code, pointer)
    assert fault.message


@pytest.mark.parametrize(
    "item",
    [
        good(label=None, cluster=None, metadata=None),
        good(label="A", cluster="", metadata={}),
        good(custom_id="x" * 512),
        good(custom_id="\U0001d504" * 512),
        good(context=[USER, ASSISTANT, USER]),
        good(candidates=[{"content": "", "system": f"s{n}"} for n in range(16)]),
        good(metadata={"n": 10**30}),
    ],
)
def test_what_is_allowed_is_accepted(item: dict[str, Any]) -> None:
    assert isinstance(only(line(item)), Item)


def test_pairs_that_a_job_lists_say_how_many_candidates_an_item_has() -> None:
    three = line(good(candidates=[{"content": "a"}] * 3))
    for candidates in (2, 4):
        fault = only(three, candidates)
        assert isinstance(fault, Fault)
        assert (fault.code, fault.pointer) == ("invalid_value", "/candidates")
        assert fault.message == f"the job's pairs compare {candidates} candidates"
    assert isinstance(only(three, 3), Item)


@pytest.mark.parametrize("label", [0, 2, "tie", None])
def test_of_more_than_two_candidates_the_label_is_an_index(label: int | str | None) -> None:
    item = only(line(good(candidates=[{"content": "a"}] * 3, label=label)))
    assert isinstance(item, Item)
    assert json.loads(item.facets)["label"] == label


@pytest.mark.parametrize("label", [3, -1, "A", True, 1.0, "0"])
def test_a_label_that_is_no_index_is_refused(label: object) -> None:
    fault = only(line(good(candidates=[{"content": "a"}] * 3, label=label)))
    assert isinstance(fault, Fault)
    assert (fault.code, fault.pointer) == ("invalid_value", "/label")


def nested(levels: int) -> bytes:
    """An item whose metadata brings it to so many levels."""
    inner = "[" * (levels - 2) + "]" * (levels - 2)
    return line(good(metadata={"x": 0})).replace(b'"x": 0', f'"x": {inner}'.encode())


def test_an_item_has_at_most_64_levels() -> None:
    assert isinstance(only(nested(64)), Item)
    for levels in (65, 500, 100_000):
        fault = only(nested(levels))
        assert isinstance(fault, Fault)
        assert fault.code == "invalid_value"


def padded(size: int) -> bytes:
    """An item of exactly so many bytes."""
    bare = len(line(good(metadata={"x": ""})))
    return line(good(metadata={"x": "y" * (size - bare)}))


def test_an_item_has_at_most_one_mebibyte() -> None:
    small = line(good(custom_id="small"))
    body = b"\n".join(
        [
            padded(LONGEST_ITEM) + b"\r",
            padded(LONGEST_ITEM + 1),
            small,
            b"{" * (3 << 20),
            small,
            b" " * (2 << 20) + b"x",
        ]
    )
    assert faults(read(body)) == [(2, "too_large"), (4, "too_large"), (6, "too_large")]
    assert [item.place for item in read(body) if isinstance(item, Item)] == [1, 3, 5]


def test_an_upload_can_be_read_again() -> None:
    upload = Upload(io.BytesIO(line(good()) + b"\n{\n"), ItemReader(Comparisons()))
    assert list(upload) == list(upload)
    assert upload.duplicate(7) == Fault(
        "duplicate_custom_id", "/custom_id", "an earlier item of this job has the same custom_id", 7
    )


@given(st.binary(max_size=200))
def test_any_bytes_are_read_to_the_end(body: bytes) -> None:
    lines = body.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    said = [item.line if isinstance(item, Fault) else item.place for item in read(body)]
    assert said == [number for number, raw in enumerate(lines, 1) if raw.strip(b" \t\r")]


TEXTS = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)  # lone surrogates among them


@given(
    custom_id=TEXTS.filter(bool),
    content=TEXTS.filter(lambda text: bool(text) and not text.isspace()),
    candidates=st.lists(TEXTS, min_size=2, max_size=16),
    cluster=st.none() | TEXTS,
)
def test_texts_come_back_exactly(custom_id: str, content: str, candidates: list[str], cluster: str | None) -> None:
    sent = {
        "custom_id": custom_id,
        "context": [{"role": "user", "content": content}],
        "candidates": [{"content": text, "system": text} for text in candidates],
        "cluster": cluster,
    }
    item = only(line(sent))
    assert isinstance(item, Item)
    assert json.loads(item.input) == sent
    assert json.loads(item.custom_id) == custom_id
    assert json.loads(item.facets) == {"label": None, "cluster": cluster, "systems": candidates}
    for stored in (item.custom_id, item.custom_id_hash, item.input, item.facets):
        stored.encode()  # what PostgreSQL takes: no lone surrogate, no NUL
        assert "\0" not in stored


@given(st.lists(TEXTS, min_size=1, max_size=20, unique=True))
def test_hashes_tell_ids_apart(ids: list[str]) -> None:
    assert len({custom_id_hash(text) for text in ids}) == len(ids)


def test_faults_do_not_depend_on_their_neighbours() -> None:
    lines = [line(good()), b"{", line(good(id=1)), b"7", b"\xff", line(good(label=2))]
    order = random.Random(7).sample(range(len(lines)), len(lines))
    alone = [only(lines[index]) for index in order]
    together = read(b"\n".join(lines[index] for index in order))
    assert [item.code for item in together if isinstance(item, Fault)] == [
        item.code for item in alone if isinstance(item, Fault)
    ]


def test_shared_cases(shared: Path) -> None:
    """Hand-written hostile uploads with the right answer to each."""
    for text in (shared / "cases" / "intake.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(text)
        upload = Upload(io.BytesIO(base64.b64decode(case["body_b64"])), ItemReader(Comparisons()))
        seen: set[str] = set()
        found: list[Fault] = []
        for item in upload:
            if isinstance(item, Item) and item.custom_id_hash in seen:
                found.append(upload.duplicate(item.place))
            elif isinstance(item, Item):
                seen.add(item.custom_id_hash)
            else:
                found.append(item)
        said = [{"line": fault.line, "code": fault.code} for fault in found[:100]]
        assert said == case["expect"]["errors"], case["id"]
        assert (0 if found else len(seen)) == case["expect"]["accepted_items"], case["id"]
