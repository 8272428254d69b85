"""JSON objects as models write them into a text.

Guarantee: total, and linear in the text whatever it holds: each token is matched once, open brackets are kept in a list
and not on the stack. Beyond RFC 8259 raw line breaks and stray backslashes inside strings are tolerated, a comma after
the last member or element, and NaN and Infinity as values; nothing else is.
"""

import re
from dataclasses import dataclass

# A brace that opens no object (LaTeX, a set, code) is text: an object goes on with a key or ends at once.
OBJECT_START = r"\{(?=[ \t\n\r]*+[\"}])"

_TOKEN = re.compile(
    r"""(
        " [^"\\]*+ (?: \\. [^"\\]*+ )*+ "
        | -? (?: 0 | [1-9][0-9]*+ ) (?: \.[0-9]++ )? (?: [eE][+-]?[0-9]++ )?
        | true | false | null | NaN | -?Infinity
        | [{}\[\]:,]
    ) [ \t\n\r]*+""",
    re.VERBOSE | re.DOTALL,
)
_BRACE = re.compile(r"[{}]")

# What may come next, by the first characters of tokens; "0" stands for numbers and words.
_VALUE = '"0{['
_INSIDE = {"{": '"}', "[": _VALUE + "]"}  # after an opening bracket or a comma
_AFTER = {"{": ",}", "[": ",]"}  # after a value


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object in a text, by code points.

    `members` are its own keys and values in the order and spelling of the text, keys without their quotes; of an inner
    object or array only the opening bracket. None where it is broken: it then reaches to the brace that balances its
    own, or to the end of the text.
    """

    span: tuple[int, int]
    members: tuple[tuple[str, str], ...] | None


def read_object(text: str, begin: int) -> JsonObject:
    """The object whose opening brace stands at `begin`."""
    members: list[tuple[str, str]] = []
    key, expected, opened = "", "{", list[str]()
    position = begin
    while token := _TOKEN.match(text, position):
        spelled = token[1]
        kind = spelled[0] if spelled[0] in '"{}[]:,' else "0"
        if kind not in expected:
            break
        position = token.end()
        if expected == _VALUE and len(opened) == 1:
            members.append((key, spelled))
        match kind:
            case ":":
                expected = _VALUE
            case ",":
                expected = _INSIDE[opened[-1]]
            case '"' if expected == _INSIDE["{"]:
                key, expected = spelled[1:-1], ":"
            case "{" | "[":
                opened.append(kind)
                expected = _INSIDE[kind]
            case _:
                if kind in "}]":
                    opened.pop()
                if not opened:
                    return JsonObject((begin, token.end(1)), tuple(members))
                expected = _AFTER[opened[-1]]
    if token is None and text.startswith('"', position):  # a string without an end: all the rest is inside it
        return JsonObject((begin, len(text)), None)
    return JsonObject((begin, _balanced(text, position, opened.count("{"))), None)


def _balanced(text: str, position: int, depth: int) -> int:
    """Where `depth` open braces are closed. Quotes no longer tell what is inside a string, so every brace counts."""
    for brace in _BRACE.finditer(text, position):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return len(text)
