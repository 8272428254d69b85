"""A JSON body, member by member, each with the very text that was sent.

Guarantee: the body is an object without a key twice, or an error says why not: Malformed for what is no JSON, Invalid
with a pointer for the rest. Items are read as they go by; a faulty one does not stop the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.contract.jobs import MOST_INLINE_ITEMS
from services.foundation.errors import Fault, Invalid, Malformed
from services.jobs.intake import Inline, Item, ItemReader
from services.jobs.items import ANY, NESTED
from services.jobs.strictjson import JsonError, StrictReader, blank_end, pointer_to
from services.vocabulary import JobKind


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a body, and its very text."""

    value: Any
    text: str


def members_of(body: bytes) -> tuple[dict[str, Member], Inline | None]:
    """The members of the object that `body` is, and its `items` where that is a list, read as those of its `kind`.

    A body of an unknown kind, or of none, is read as a judgement: it is refused anyway.
    """
    try:
        text = body.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f"not UTF-8: {error.reason} at byte {error.start + 1}"
        raise Malformed("the body is not UTF-8", [Fault("invalid_utf8", "", message)]) from None
    try:
        return _walked(text)
    except JsonError as error:
        fault = Fault(error.code, error.pointer, error.message)
        if error.code == "invalid_json":
            raise Malformed("the body is not JSON", [fault]) from None
        raise Invalid("the body cannot be used", [fault]) from None
    except RecursionError:
        raise Invalid("the body cannot be used", [Fault("invalid_value", "", NESTED)]) from None


def _walked(text: str) -> tuple[dict[str, Member], Inline | None]:
    walk = _Walk(text)
    members, items = walk.members()
    if items is None or (kind := _kind(members)) is walk.kind:
        return members, items
    return _Walk(text, kind).members()  # the kind stood behind the items


def _kind(members: Mapping[str, Member]) -> JobKind:
    named = members["kind"].value if "kind" in members else None
    return next((kind for kind in JobKind if kind == named), JobKind.JUDGEMENT)


class _Walk:
    """Goes through the top of a body by hand, so that every member's own text is known.

    `kind` is what its items are read as: the given one, else what the members before them say.
    """

    def __init__(self, text: str, kind: JobKind | None = None) -> None:
        self.kind = kind
        self._text = text
        self._json = StrictReader()
        self._at = 0

    def members(self) -> tuple[dict[str, Member], Inline | None]:
        members: dict[str, Member] = {}
        items: Inline | None = None
        if self._next() != "{":
            self._json.document(self._text)
            raise JsonError("not_an_object", "", "the body is a JSON object")
        self._at += 1
        more = self._next() != "}"
        while more:
            if self._next() != '"':
                raise self._expected("a key")
            key = self._value("").value
            if key in members or (key == "items" and items is not None):
                raise JsonError("invalid_json", "", "a key stands twice in the body")
            self._take(":")
            if key == "items" and self._next() == "[":
                self.kind = self.kind or _kind(members)
                items = self._items(ItemReader(ANY[self.kind]))
            else:
                self._next()
                members[key] = self._value(pointer_to(key))
            if more := self._next() == ",":
                self._at += 1
        self._take("}")
        if self._next():
            raise self._expected("nothing more")
        return members, items

    def _items(self, reader: ItemReader) -> Inline:
        read: list[Item | Fault] = []
        self._at += 1
        more = self._next() != "]"
        while more:
            if len(read) == MOST_INLINE_ITEMS:
                message = f"a body holds at most {MOST_INLINE_ITEMS} items; an upload may hold more"
                raise JsonError("too_many_items", "/items", message)
            self._next()
            start = self._at
            value, self._at, infinite = self._json.scan(self._text, start)
            if infinite:
                read.append(Fault(infinite.code, pointer_to("items", len(read)) + infinite.pointer, infinite.message))
            else:
                read.append(reader.element(len(read), self._text[start : self._at], value))
            if more := self._next() == ",":
                self._at += 1
        self._take("]")
        return Inline(read)

    def _value(self, pointer: str) -> Member:
        start = self._at
        value, self._at, infinite = self._json.scan(self._text, start)
        if infinite:
            raise JsonError(infinite.code, pointer + infinite.pointer, infinite.message)
        return Member(value, self._text[start : self._at])

    def _next(self) -> str:
        """The next character that is not white space, nothing at the end."""
        self._at = blank_end(self._text, self._at)
        return self._text[self._at : self._at + 1]

    def _take(self, character: str) -> None:
        if self._next() != character:
            raise self._expected(repr(character))
        self._at += 1

    def _expected(self, what: str) -> JsonError:
        return JsonError("invalid_json", "", f"expected {what} at character {self._at + 1}")
