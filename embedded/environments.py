"""Virtual environments made from lock files: the application's `.venv` and SGLang's `.assizes/sglang`.

Guarantee: an environment is whole and made from exactly its recipe, or it is made anew; set-ups of one checkout that
run at once take turns. Needs only the standard library, since it makes the environment that everything else runs in.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from embedded.places import CHECKOUT, HOME, exclusively, write_atomically
from embedded.processes import EmbeddedError, run

APPLICATION = CHECKOUT / ".venv"
_APPLICATION_LOCK = CHECKOUT / "requirements-dev.lock"


def ensure_application() -> Path:
    """The interpreter that has what the service and its development need. Raises EmbeddedError."""
    turn = HOME / "application.lock"
    return ensure(APPLICATION, turn, [_APPLICATION_LOCK], lambda python: pip_install(python, _APPLICATION_LOCK))


def ensure(folder: Path, turn: Path, recipe: Iterable[Path], fill: Callable[[Path], None]) -> Path:
    """Make the environment in `folder` unless it is whole; return its interpreter.

    `recipe` are the files that decide what is in it, `fill` installs that, given the interpreter. `turn` is a file that
    whoever makes it holds locked.

    Raises:
        EmbeddedError: something could not be installed. The next call starts over.
    """
    python = folder / "bin" / "python"
    marker = folder / "complete"
    digest = _digest(recipe)
    with exclusively(turn):
        if not (marker.exists() and marker.read_text() == digest and python.exists()):
            print(f"making the environment {os.path.relpath(folder, CHECKOUT)} ...", flush=True)
            if folder.exists():
                shutil.rmtree(folder)
            try:
                run(f"making {folder}", [sys.executable, "-m", "venv", folder], cwd=CHECKOUT)
            except EmbeddedError as error:
                raise EmbeddedError(f"{error}\nOn Debian and Ubuntu the package python3-venv is missing.") from error
            fill(python)
            write_atomically(marker, digest)
    return python


def pip_install(python: Path, lock: Path) -> None:
    """Install exactly what a lock names. Nothing is built here, so no compiler is needed."""
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    pip += ["--no-compile", "--only-binary", ":all:", "--require-hashes", "-r", lock]
    run(f"installing {lock.name}", pip, cwd=CHECKOUT)


def _digest(recipe: Iterable[Path]) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(recipe):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
