"""Receiving a bulk upload: a multipart form of `job` (JSON) and `items` (NDJSON, plain or gzip).

Guarantee: memory stays flat whatever is sent. Items go to an unnamed file on disk, which vanishes with the request
however that ends; what is larger than allowed, before or after decompression, is refused as soon as it shows.
"""

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from werkzeug.datastructures import Headers
from werkzeug.sansio.multipart import Data, Epilogue, Event, Field, File, MultipartDecoder, NeedData

from api.errors import InvalidMultipart, PayloadTooLarge, SpoolUnavailable, UnsupportedMediaType
from services.foundation.errors import Fault, Invalid

READ = 64 << 10
LARGEST_JOB = 1 << 20
LARGEST_HEADERS = 1 << 20  # what may stand before or between parts; also bounds what the decoder holds
GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Received:
    """An upload: the bytes of its job, and its items as a file."""

    job: bytes
    items: BinaryIO


@contextmanager
def received(stream: BinaryIO, boundary: str, largest: int, spool_dir: Path | None) -> Iterator[Received]:
    """Receive an upload of at most `largest` bytes of items, decompressed.

    Raises Invalid, InvalidMultipart, PayloadTooLarge, UnsupportedMediaType, SpoolUnavailable.
    """
    with _spool(spool_dir) as spool:
        form = _Form(spool, largest)
        for event in _events(stream, boundary):
            form.take(event)
        yield form.finished()


def _spool(folder: Path | None) -> BinaryIO:
    try:
        return tempfile.TemporaryFile(dir=folder)
    except OSError as error:
        raise SpoolUnavailable("the upload cannot be kept now") from error


def _events(stream: BinaryIO, boundary: str) -> Iterator[Event]:
    try:
        decoder = MultipartDecoder(boundary.encode("ascii"), LARGEST_HEADERS)
        while data := stream.read(READ):
            decoder.receive_data(data)
            while not isinstance(event := decoder.next_event(), NeedData):
                yield event
        decoder.receive_data(None)
        while not isinstance(event := decoder.next_event(), Epilogue):
            yield event
    except ValueError as error:
        raise InvalidMultipart(f"the body is no whole multipart form: {error}") from None


class _Sink(Protocol):
    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class _Form:
    """The parts as they come in, in either order."""

    def __init__(self, spool: BinaryIO, largest: int) -> None:
        self._spool = spool
        self._largest = largest
        self._job = _Memory(LARGEST_JOB)
        self._seen: set[str] = set()
        self._sink: _Sink = self._job

    def take(self, event: Event) -> None:
        if isinstance(event, Field | File):
            self._sink = self._part(event.name, event.headers)
        elif isinstance(event, Data):
            self._sink.write(event.data)
            if not event.more_data:
                self._sink.close()

    def _part(self, name: str | None, headers: Headers) -> _Sink:
        if name not in {"job", "items"}:
            raise Invalid("an upload has the parts job and items", [Fault("unknown_field", "", "an unknown part")])
        if name in self._seen:
            raise Invalid("an upload has one part of a kind", [Fault("invalid_value", f"/{name}", "sent twice")])
        self._seen.add(name)
        encoding = headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in {"identity", "gzip"}:
            raise UnsupportedMediaType("a part is sent plain or with Content-Encoding: gzip")
        sink: _Sink = self._job if name == "job" else _Disk(self._spool, self._largest)
        return _Gunzip(sink) if encoding == "gzip" else sink

    def finished(self) -> Received:
        for name in ("job", "items"):
            if name not in self._seen:
                raise Invalid("a part is missing", [Fault("missing_field", f"/{name}", f"an upload needs {name}")])
        return Received(bytes(self._job.data), self._spool)


class _Memory:
    def __init__(self, largest: int) -> None:
        self.data = bytearray()
        self._largest = largest

    def write(self, data: bytes) -> None:
        if len(self.data) + len(data) > self._largest:
            raise PayloadTooLarge(f"the part job is larger than {self._largest} bytes")
        self.data += data

    def close(self) -> None:
        """Nothing is left to do."""


class _Disk:
    def __init__(self, spool: BinaryIO, largest: int) -> None:
        self._spool = spool
        self._left = largest
        self._largest = largest

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            raise PayloadTooLarge(f"the items are larger than {self._largest} bytes")
        try:
            self._spool.write(data)
        except OSError as error:
            raise SpoolUnavailable("the upload cannot be kept now") from error

    def close(self) -> None:
        try:
            self._spool.flush()
        except OSError as error:
            raise SpoolUnavailable("the upload cannot be kept now") from error


class _Gunzip:
    """Decompresses into another sink, a bounded piece at a time; a file may hold several gzip members."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink
        self._member = zlib.decompressobj(GZIP)

    def write(self, data: bytes) -> None:
        try:
            while data:
                if self._member.eof:
                    self._member = zlib.decompressobj(GZIP)
                self._sink.write(self._member.decompress(data, READ))
                data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        except zlib.error as error:
            raise InvalidMultipart(f"a part is not gzip: {error}") from None

    def close(self) -> None:
        while not self._member.eof and (rest := self._member.decompress(b"", READ)):
            self._sink.write(rest)
        if not self._member.eof:
            raise InvalidMultipart("a gzip part ends early")
        self._sink.close()
