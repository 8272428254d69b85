"""Intake: the strict reading of items, out of an NDJSON upload or out of a job's JSON body.

Guarantee: an item is accepted only as a whole and only as it will be heard; its text is kept exactly as sent. A line
that is not accepted gives one fault, the first in the order of the checks: UTF-8, JSON, finite numbers, an object, and
what `items.py` asks of its kind. Reading holds one line at a time, however long the upload is.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, BinaryIO, NamedTuple, Protocol

from services.foundation.errors import Fault
from services.foundation.jsontext import literal
from services.jobs.items import COMMON, LONGEST_ID, NESTED, Shape, Wrong, check_common, facets_json, invalid
from services.jobs.strictjson import JsonError, StrictReader, pointer_to

LONGEST_ITEM = 1 << 20  # bytes of its JSON text

TOO_LARGE = f"the item is larger than {LONGEST_ITEM} bytes"
DUPLICATE = "an earlier item of this job has the same custom_id"

BLANKS = b" \t\r\n"
BOM = b"\xef\xbb\xbf"


class Item(NamedTuple):
    """One accepted item, as it is stored, and how many texts are compared in it.

    `place` is its line (from 1) in an upload, its index in a body. `custom_id` is a JSON string literal,
    `custom_id_hash` the 32 hexadecimal digits of a BLAKE2b of the string, `input` the item's JSON text as sent,
    `facets` the JSON text of its label, cluster and systems.
    """

    place: int
    custom_id: str
    custom_id_hash: str
    input: str
    facets: str
    texts: int


class Items(Protocol):
    """Where a job's items come from. Can be gone through again and again."""

    def __iter__(self) -> Iterator[Item | Fault]:
        """Every item, or what is wrong with it, in the order sent."""
        ...

    def duplicate(self, place: int) -> Fault:
        """The fault of an item whose `custom_id` an earlier one has."""
        ...


class ItemReader:
    """Reads the items of a job. One reader serves one thread."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._needed = {"custom_id", *shape.required}
        self._fields = COMMON.union(shape.required, shape.optional)
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
        except (JsonError, Wrong) as wrong:
            return Fault(wrong.code, wrong.pointer, wrong.message, number)

    def element(self, index: int, text: str, value: Any) -> Item | Fault:
        """The item that is element `index` of a body's `items`, or its fault. `text` is what was read as `value`."""
        place = pointer_to("items", index)
        if len(text) > LONGEST_ITEM or len(text.encode()) > LONGEST_ITEM:
            return Fault("too_large", place, TOO_LARGE)
        try:
            return self._item(index, text, value)
        except Wrong as wrong:
            return Fault(wrong.code, place + wrong.pointer, wrong.message)

    def _missing(self, value: dict[str, Any]) -> list[str]:
        return [name for name in ("custom_id", *self._shape.required) if name not in value]

    def _item(self, place: int, text: str, value: Any) -> Item:
        if type(value) is not dict:
            raise Wrong("not_an_object", (), "an item is a JSON object")
        if not value.keys() <= self._fields:
            name = next(name for name in value if name not in self._fields)
            missing = self._missing(value)
            besides = f", and needs {', '.join(missing)}" if missing else ""
            raise Wrong("unknown_field", (name,), f"an item has no such field{besides}")
        if not value.keys() >= self._needed:
            missing = self._missing(value)
            raise Wrong("missing_field", missing[:1], f"an item needs {', '.join(missing)}")
        custom_id = value["custom_id"]
        if type(custom_id) is not str or not 1 <= len(custom_id) <= LONGEST_ID:
            raise invalid(f"custom_id is a string of 1 to {LONGEST_ID} characters", "custom_id")
        facets = self._shape.facets(value)
        check_common(value)
        if (wrong := self._shape.misfit(facets.texts)) is not None:
            raise wrong
        stored = facets_json(facets, value.get("cluster"))
        return Item(place, literal(custom_id), custom_id_hash(custom_id), text, stored, facets.texts)


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

    def fitting(self, shape: Shape) -> "Inline":
        """The same items; those that are none of this very job's are at fault."""
        return Inline([_fitted(item, shape) for item in self.read])

    def __iter__(self) -> Iterator[Item | Fault]:
        return iter(self.read)

    def duplicate(self, place: int) -> Fault:
        """The fault of the element `place`, whose `custom_id` an earlier element has."""
        return Fault("duplicate_custom_id", pointer_to("items", place, "custom_id"), DUPLICATE)


def custom_id_hash(custom_id: str) -> str:
    """What tells custom ids apart in the database: 32 hexadecimal digits, a UUID's form. Any string has one."""
    return blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _fitted(item: Item | Fault, shape: Shape) -> Item | Fault:
    wrong = shape.misfit(item.texts) if isinstance(item, Item) else None
    if wrong is None:
        return item
    return Fault(wrong.code, pointer_to("items", item.place) + wrong.pointer, wrong.message)  # type: ignore[union-attr] # an Item
