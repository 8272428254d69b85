"""The log of a launched runtime: what it prints, in a few files of bounded size.

Guarantee: nothing that a server printed is lost while its worker lives, and a server never waits for a full disk. The
newest text is in `NAME.log`, what came before in `NAME.log.1`, and so on. No two workers may write to one file.
"""

import os
import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import IO

import structlog

log = structlog.get_logger(__name__)

LARGEST = 16 << 20  # bytes of one file
KEPT = 3  # files beside the newest
PIECE = 1 << 16


def keep_log(source: IO[bytes], file: Path) -> threading.Thread:
    """Append all that comes out of `source` to `file`, in a thread that ends with it and then closes it."""
    thread = threading.Thread(target=_pump, args=(source, file), name=f"log of {file.stem}", daemon=True)
    thread.start()
    return thread


def _pump(source: IO[bytes], file: Path) -> None:
    with source:
        while piece := os.read(source.fileno(), PIECE):
            try:
                _append(file, piece)
            except OSError as error:  # the pipe is emptied all the same: a server that cannot print stands still
                log.warning("runtime_log_not_written", file=str(file), error=error.strerror)


def _append(file: Path, piece: bytes) -> None:
    if file.exists() and file.stat().st_size + len(piece) > LARGEST:
        names = [file, *(Path(f"{file}.{number}") for number in range(1, KEPT + 1))]
        for newer, older in reversed(list(pairwise(names))):
            with suppress(FileNotFoundError):
                newer.replace(older)
    with file.open("ab") as opened:
        opened.write(piece)
