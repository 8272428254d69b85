"""Where the embedded stack keeps things: all of it in the checkout's `.assizes/`, or in a folder that the caller names.

Guarantee: no other folder is written to, except a short-lived folder of sockets in /tmp, and shared memory for a while.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
HOME = CHECKOUT / ".assizes"
SGLANG = HOME / "sglang"
MODELS = HOME / "models"


@contextmanager
def exclusively(lock: Path) -> Iterator[None]:
    """Hold `lock` for the block; wait while another process holds it. The kernel drops it when the holder ends."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write `text` so that a reader sees the old file or the new one, never a part."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    scratch.touch(mode, exist_ok=False)
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
