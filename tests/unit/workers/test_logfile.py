"""The log of a runtime: all that was printed, in files of bounded size."""

import os
from pathlib import Path

import pytest

from workers.runtime import logfile
from workers.runtime.logfile import KEPT, keep_log


def printed(file: Path, *pieces: bytes) -> None:
    """Have these pieces logged, one by one."""
    for piece in pieces:
        reading, writing = os.pipe()
        thread = keep_log(os.fdopen(reading, "rb"), file)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(piece)
        thread.join()


def test_what_is_printed_is_appended_whole(tmp_path: Path) -> None:
    file = tmp_path / "judge.log"
    file.write_bytes(b"before\n")
    printed(file, b"one\n" * 50_000, b"half a line")
    assert file.read_bytes() == b"before\n" + b"one\n" * 50_000 + b"half a line"


def test_a_full_file_becomes_an_older_one_and_the_oldest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfile, "LARGEST", 10)
    file = tmp_path / "judge.log"
    printed(file, *(b"piece %d\n" % number for number in range(6)))
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert kept == {
        "judge.log": b"piece 5\n",
        **{f"judge.log.{age}": b"piece %d\n" % (5 - age) for age in range(1, KEPT + 1)},
    }


def test_a_server_can_print_on_although_its_log_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "judge.log"
    printed(file, b"more than a pipe holds\n" * 10_000)
    assert not file.exists()
