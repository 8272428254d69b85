"""Strict JSON: what RFC 8259 allows is read, all else is refused with its place."""

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.jobs.strictjson import JsonError, StrictReader, pointer_to, too_deep

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


def plain(value: Any) -> Any:
    """`value` with long integers as int again."""
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return value


@given(VALUES, st.sampled_from([None, 2]), st.booleans())
def test_reads_what_json_writes(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert plain(StrictReader().document(f" \t\r\n{text}\n")) == value


@given(st.text(alphabet='{}[]",:\\ \n0123456789.eE+-truefalsnNaI\u00e9', max_size=30))
def test_accepts_nothing_that_the_standard_library_refuses(text: str) -> None:
    try:
        StrictReader().document(text)
    except JsonError:
        return
    json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        '{"a":1,}',
        "{'a':1}",
        "[1] // note",
        "07",
        "+1",
        ".5",
        "1.",
        "\u00a01",
        "\u0661",
        '"\x0c"',
        '"\\x41"',
        '"\\u12"',
        "[1] [2]",
        "tru",
        "undefined",
        '{"a":1 "b":2}',
        "\ufeff1",
    ],
)
def test_refuses_what_is_not_json(text: str) -> None:
    with pytest.raises(JsonError) as caught:
        StrictReader().document(text)
    assert (caught.value.code, caught.value.pointer) == ("invalid_json", "")


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', '[{"b":{"a":1,"\\u0061":1}}]', '{"":0,"":0}'])
def test_refuses_a_key_twice_in_one_object_at_any_depth(text: str) -> None:
    with pytest.raises(JsonError, match="twice") as caught:
        StrictReader().document(text)
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("NaN", ""),
        ('{"a":[0,{"b/c~":-Infinity}]}', "/a/1/b~1c~0"),
        ("[1e400]", "/0"),
        ("[1.5, -1e999, NaN]", "/1"),
        (f'{{"a":1{"0" * 400}.0}}', "/a"),
    ],
)
def test_refuses_numbers_beyond_a_double_and_says_where(text: str, pointer: str) -> None:
    with pytest.raises(JsonError) as caught:
        StrictReader().document(text)
    assert (caught.value.code, caught.value.pointer) == ("non_finite_number", pointer)


def test_broken_json_comes_before_a_number_that_is_not_finite() -> None:
    with pytest.raises(JsonError) as caught:
        StrictReader().document("[NaN, ]")
    assert caught.value.code == "invalid_json"


def test_a_reader_forgets_the_numbers_of_the_text_before() -> None:
    reader = StrictReader()
    with pytest.raises(JsonError):
        reader.document("NaN")
    assert reader.document("[1.5]") == [1.5]


def test_integers_have_any_length_and_long_ones_are_no_int() -> None:
    long = "9" * 10_000
    value = StrictReader().document(f"[{long}, -3, 123456789012345678]")
    assert value == [Decimal(long), -3, 123456789012345678]
    assert not isinstance(value[0], int)


def test_small_numbers_may_underflow() -> None:
    assert StrictReader().document("1e-400") == 0.0
    assert math.isfinite(StrictReader().document("1.7976931348623157e308"))


def test_escaped_surrogates_and_nul_are_data() -> None:
    assert StrictReader().document(r'"\ud835 \u0000 \ud835\udd04"') == "\ud835 \x00 \U0001d504"


def test_what_is_nested_beyond_reading_is_no_crash() -> None:
    with pytest.raises(RecursionError):
        StrictReader().document("[" * 100_000)


def test_depth_counts_the_value_itself() -> None:
    nested: Any = {}
    for _ in range(63):
        nested = [nested]
    assert not too_deep(nested, 64)
    assert too_deep([nested], 64)
    assert not too_deep("text", 0)


def test_pointers_are_escaped_and_bounded() -> None:
    assert pointer_to() == ""
    assert pointer_to("a/b", 3, "m~n") == "/a~1b/3/m~0n"
    assert pointer_to("metadata", "x" * 1000) == "/metadata"
