"""Intake: the strict reading of items, out of an NDJSON upload or out of a job's JSON body.

Guarantee: an item is accepted only as a whole and only as it will be heard; its text is kept exactly as sent. A line
that is not accepted gives one fault, the first in the order of the checks: UTF-8, JSON, finite numbers, an object,
unknown fields, missing fields, values. Reading holds one line at a time, however long the upload is.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, BinaryIO, NamedTuple, Protocol

from services.contract.jobs import MOST_CANDIDATES
from services.foundation.errors import Fault
from services.foundation.jsontext import literal
from services.jobs.strictjson import DEEPEST, JsonError, StrictReader, pointer_to, too_deep

LONGEST_ITEM = 1 << 20  # bytes of its JSON text
LONGEST_ID = 512  # code points
LABELS = frozenset({"A", "B", "tie"})

REQUIRED = ("custom_id", "context", "candidates")
FIELDS = frozenset({*REQUIRED, "label", "cluster", "metadata"})
TOO_LARGE = f"the item is larger than {LONGEST_ITEM} bytes"
NESTED = f"nested more than {DEEPEST} levels"
DUPLICATE = "an earlier item of this job has the same custom_id"
TURNS = ("user", "assistant")
MESSAGE = {"role", "content"}

BLANKS = b" \t\r\n"
BOM = b"\xef\xbb\xbf"


class Item(NamedTuple):
    """One accepted item, as it is stored, and how many candidates it has.

    `place` is its line (from 1) in an upload, its index in a body. `custom_id` is a JSON string literal,
    `custom_id_hash` the 32 hexadecimal digits of a BLAKE2b of the string, `input` the item's JSON text as sent,
    `facets` the JSON text of its label, cluster and systems.
    """

    place: int
    custom_id: str
    custom_id_hash: str
    input: str
    facets: str
    candidates: int


class Items(Protocol):
    """Where a job's items come from. Can be gone through again and again."""

    def __iter__(self) -> Iterator[Item | Fault]:
        """Every item, or what is wrong with it, in the order sent."""
        ...

    def duplicate(self, place: int) -> Fault:
        """The fault of an item whose `custom_id` an earlier one has."""
        ...


class _Wrong(Exception):
    """What is wrong with the item at hand."""

    def __init__(self, code: str, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer_to(*path)
        self.message = message


class ItemReader:
    """Reads items of comparisons. `candidates`: how many each has to have, None for any.

    One reader serves one thread.
    """

    def __init__(self, candidates: int | None = None) -> None:
        self._candidates = candidates
        self._json = StrictReader()

    def line(self, number: int, raw: bytes) -> Item | Fault:
        """The item on one line of an upload, or its fault. `raw` has no blanks around it."""
        if len(raw) > LONGEST_ITEM:
            return Fault("too_large", "", TOO_LARGE, number)
        try:
            text = raw.decode()
            return self._item(number, text, self._json.document(text))
        except UnicodeDecodeError as error:
            return Fault("invalid_utf8", "", f"not UTF-8: {error.reason} at byte {error.start + 1}", number)
        except RecursionError:
            return Fault("invalid_value", "", NESTED, number)
        except (JsonError, _Wrong) as wrong:
            return Fault(wrong.code, wrong.pointer, wrong.message, number)

    def element(self, index: int, text: str, value: Any) -> Item | Fault:
        """The item that is element `index` of a body's `items`, or its fault. `text` is what was read as `value`."""
        place = pointer_to("items", index)
        if len(text) > LONGEST_ITEM or len(text.encode()) > LONGEST_ITEM:
            return Fault("too_large", place, TOO_LARGE)
        try:
            return self._item(index, text, value)
        except _Wrong as wrong:
            return Fault(wrong.code, place + wrong.pointer, wrong.message)

    def _item(self, place: int, text: str, value: Any) -> Item:
        if type(value) is not dict:
            raise _Wrong("not_an_object", (), "an item is a JSON object")
        if not value.keys() <= FIELDS:
            name = next(name for name in value if name not in FIELDS)
            raise _Wrong("unknown_field", (name,), "an item has no such field")
        for name in REQUIRED:
            if name not in value:
                raise _Wrong("missing_field", (name,), f"an item needs {name}")
        custom_id = value["custom_id"]
        if type(custom_id) is not str or not 1 <= len(custom_id) <= LONGEST_ID:
            raise _invalid(f"custom_id is a string of 1 to {LONGEST_ID} characters", "custom_id")
        _check_context(value["context"])
        systems = self._systems(value["candidates"])
        label, cluster, metadata = value.get("label"), value.get("cluster"), value.get("metadata")
        _check_label(label, len(systems))
        if cluster is not None and type(cluster) is not str:
            raise _invalid("cluster is a string", "cluster")
        if metadata is not None and type(metadata) is not dict:
            raise _invalid("metadata is an object", "metadata")
        if metadata and too_deep(metadata, DEEPEST - 1):
            raise _invalid(NESTED, "metadata")
        shown = ",".join(map(_literal, systems))
        labelled = str(label) if type(label) is int else _literal(label)
        facets = f'{{"label":{labelled},"cluster":{_literal(cluster)},"systems":[{shown}]}}'
        return Item(place, literal(custom_id), custom_id_hash(custom_id), text, facets, len(systems))

    def _systems(self, candidates: Any) -> list[str | None]:
        """The system of each candidate, where it has one."""
        if type(candidates) is not list:
            raise _invalid("candidates is a list", "candidates")
        if not 2 <= len(candidates) <= MOST_CANDIDATES:
            raise _invalid(f"an item has 2 to {MOST_CANDIDATES} candidates", "candidates")
        if self._candidates is not None and len(candidates) != self._candidates:
            raise _invalid(misfit(self._candidates), "candidates")
        systems: list[str | None] = []
        for index, candidate in enumerate(candidates):
            if type(candidate) is not dict:
                raise _invalid("a candidate is an object", "candidates", index)
            if type(candidate.get("content")) is not str:
                raise _invalid("a candidate's content is a string", "candidates", index, "content")
            system = candidate.get("system")
            if system is not None and type(system) is not str:
                raise _invalid("a candidate's system is a string", "candidates", index, "system")
            if len(candidate) > 1 + ("system" in candidate):
                name = next(name for name in candidate if name not in {"content", "system"})
                raise _invalid("a candidate has content and system only", "candidates", index, name)
            systems.append(system)
        return systems


class Upload:
    """The items of an NDJSON file: lines end with LF alone, blank ones are skipped but counted."""

    def __init__(self, stream: BinaryIO, reader: ItemReader) -> None:
        self._stream = stream
        self._reader = reader

    def __iter__(self) -> Iterator[Item | Fault]:
        self._stream.seek(0)
        if self._stream.read(len(BOM)) != BOM:
            self._stream.seek(0)
        number = 0
        while line := self._stream.readline(LONGEST_ITEM + len(BLANKS)):
            number += 1
            if len(line) > LONGEST_ITEM and line[-1:] != b"\n":
                self._skip_line()
                yield self._reader.line(number, line)  # too large, whatever was skipped
            elif raw := line.strip(BLANKS):
                yield self._reader.line(number, raw)

    def _skip_line(self) -> None:
        while (rest := self._stream.readline(io.DEFAULT_BUFFER_SIZE)) and rest[-1:] != b"\n":
            pass

    def duplicate(self, place: int) -> Fault:
        """The fault of the line `place`, whose `custom_id` an earlier line has."""
        return Fault("duplicate_custom_id", "/custom_id", DUPLICATE, place)


@dataclass(frozen=True, slots=True)
class Inline:
    """The items of a body, read already: elements of its list `items`."""

    read: Sequence[Item | Fault]

    def having(self, candidates: int) -> "Inline":
        """The same items; those that have not so many candidates are at fault."""
        return Inline(
            [
                Fault("invalid_value", pointer_to("items", item.place, "candidates"), misfit(candidates))
                if isinstance(item, Item) and item.candidates != candidates
                else item
                for item in self.read
            ]
        )

    def __iter__(self) -> Iterator[Item | Fault]:
        return iter(self.read)

    def duplicate(self, place: int) -> Fault:
        """The fault of the element `place`, whose `custom_id` an earlier element has."""
        return Fault("duplicate_custom_id", pointer_to("items", place, "custom_id"), DUPLICATE)


def custom_id_hash(custom_id: str) -> str:
    """What tells custom ids apart in the database: 32 hexadecimal digits, a UUID's form. Any string has one."""
    return blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def misfit(candidates: int) -> str:
    """What is wrong with an item that has not so many candidates."""
    return f"the job's pairs compare {candidates} candidates"


def _check_label(label: Any, candidates: int) -> None:
    if label is None or (type(label) is str and label in (LABELS if candidates == 2 else {"tie"})):
        return
    if candidates == 2:
        raise _invalid('label is "A", "B", "tie" or null', "label")
    if type(label) is not int or not 0 <= label < candidates:
        raise _invalid('label is the index of a candidate, "tie" or null', "label")


def _check_context(context: Any) -> None:
    """Messages alternate, a user's first and last, none of them blank."""
    if type(context) is not list:
        raise _invalid("context is a list of messages", "context")
    for index, message in enumerate(context):
        if type(message) is not dict:
            raise _invalid("a message is an object", "context", index)
        if message.get("role") != TURNS[index & 1]:
            raise _invalid("roles alternate: user, assistant, user ...", "context", index, "role")
        content = message.get("content")
        if type(content) is not str or not content or content.isspace():
            raise _invalid("a message's content is a string, not blank", "context", index, "content")
        if len(message) > len(MESSAGE):
            name = next(name for name in message if name not in MESSAGE)
            raise _invalid("a message has role and content only", "context", index, name)
    if not len(context) & 1:
        raise _invalid("a context starts and ends with a user's message", "context")


def _invalid(message: str, *path: str | int) -> _Wrong:
    return _Wrong("invalid_value", path, message)


def _literal(text: str | None) -> str:
    return "null" if text is None else literal(text)
