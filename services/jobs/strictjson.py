"""Strict JSON: RFC 8259 and nothing beside it, over the standard library's scanner.

Guarantee: a text is read if and only if it is JSON in which no object holds a key twice and every number fits a double
or is an integer. Escaped lone surrogates and NUL are data. Integers may have any length: short ones come as int, longer
ones as Decimal, which no int check takes for a number to count with.
"""

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

DEEPEST = 64
LONGEST_INT = 18  # digits; what still counts as a number to calculate with
LONGEST_POINTER = 256  # a longer one would only repeat the caller's text
SHOWN = 64  # characters of a caller's key that a message repeats
WHITE = re.compile(r"[ \t\n\r]*")


class JsonError(ValueError):
    """What is wrong with a JSON text: `code` is `invalid_json` or `non_finite_number`, `pointer` leads to the place."""

    def __init__(self, code: str, pointer: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer
        self.message = message


def pointer_to(*path: str | int) -> str:
    """A JSON pointer (RFC 6901) to `path`, or to the innermost place around it that takes at most 256 characters."""
    pointer = ""
    for step in path:
        longer = f"{pointer}/{str(step).replace('~', '~0').replace('/', '~1')}"
        if len(longer) > LONGEST_POINTER:
            break
        pointer = longer
    return pointer


class StrictReader:
    """Reads JSON values out of texts. Keeps what it saw of the value at hand, so one reader serves one thread."""

    def __init__(self) -> None:
        self._infinite = False
        self._decode = json.JSONDecoder(
            object_pairs_hook=_object,
            parse_float=self._float,
            parse_int=_integer,
            parse_constant=self._constant,
        ).raw_decode

    def scan(self, text: str, start: int = 0) -> tuple[Any, int, JsonError | None]:
        """The value that begins at `start`, where it ends, and the first number in it that is not finite, as an error.

        Raises JsonError when there is no value, RecursionError when it is nested too deep to be read.
        """
        self._infinite = False
        try:
            value, end = self._decode(text, start)
        except json.JSONDecodeError as error:
            raise JsonError("invalid_json", "", f"{error.msg} at character {error.pos + 1}") from None
        except _DuplicateKey as error:
            raise JsonError("invalid_json", "", f"the key {error.key} stands twice in one object") from None
        if not self._infinite:
            return value, end, None
        place = pointer_to(*next(_infinite_paths(value, ())))
        return value, end, JsonError("non_finite_number", place, "not a finite number that a double can hold")

    def document(self, text: str) -> Any:
        """The one value that `text` is, with white space around it. Raises JsonError, RecursionError."""
        value, end, infinite = self.scan(text, blank_end(text, 0))
        if end != len(text) and blank_end(text, end) != len(text):
            raise JsonError("invalid_json", "", f"more text after the value, at character {end + 1}")
        if infinite:
            raise infinite
        return value

    def _float(self, text: str) -> float:
        value = float(text)
        if math.isinf(value):
            self._infinite = True
        return value

    def _constant(self, text: str) -> float:
        self._infinite = True
        return float(text)


def blank_end(text: str, start: int) -> int:
    """Where the white space that begins at `start` ends."""
    blank = WHITE.match(text, start)
    assert blank is not None, "an empty match is a match"
    return blank.end()


def too_deep(value: Any, allowed: int) -> bool:
    """True when lists and objects in `value`, itself included, are nested more than `allowed` levels."""
    if isinstance(value, dict):
        return allowed == 0 or any(too_deep(inner, allowed - 1) for inner in value.values())
    if isinstance(value, list):
        return allowed == 0 or any(too_deep(inner, allowed - 1) for inner in value)
    return False


class _DuplicateKey(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = json.dumps(key[:SHOWN])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKey(key)
            seen.add(key)
    return value


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= LONGEST_INT else Decimal(text)


def _infinite_paths(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """The ways to the numbers in `value` that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _infinite_paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _infinite_paths(inner, (*path, index))
