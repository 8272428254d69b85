"""A real SGLang server's interpreter, for a CPU, in its own virtual environment `.assizes/sglang`.

Guarantee: `install` returns when that environment is complete and made from exactly the files in
`embedded/sglang_cpu/`. An interrupted or outdated one is made anew; set-ups that run at once take turns. Needs Linux on
x86_64 with glibc 2.34 or later, and only the standard library, so that it can run while the application's own
environment is being installed.

Torch comes as a small CPU build where pip finds one, else as PyPI's, which loads CUDA's libraries even where no GPU is.
"""

import hashlib
import os
import shutil
import sys
from pathlib import Path

from embedded.places import CHECKOUT, HOME, SGLANG, exclusively, write_atomically
from embedded.processes import EmbeddedError, run

RECIPE = Path(__file__).resolve().parent / "sglang_cpu"
PYTHON = SGLANG / "bin" / "python"
_MARKER = SGLANG / "complete"


def install() -> Path:
    """Make the environment if it is not there yet, and return its interpreter.

    Raises:
        EmbeddedError: a package could not be installed or SGLang does not import.
    """
    with exclusively(HOME / "sglang.lock"):
        if not complete():
            shutil.rmtree(SGLANG, ignore_errors=True)
            _install()
            write_atomically(_MARKER, _recipe_digest())
    return PYTHON


def complete() -> bool:
    """True when the environment is whole and made from the present recipe, and its interpreter still exists."""
    return _MARKER.exists() and _MARKER.read_text() == _recipe_digest() and PYTHON.exists()


def environment() -> dict[str, str]:
    """The environment for a process of that interpreter.

    `PYTHONDONTWRITEBYTECODE` would leave modules uncompiled and cost 16 s at each start; a `PYTHONPATH` would let
    foreign modules shadow SGLang's; with a GPU visible, a CUDA build of torch would choose it.
    """
    dropped = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {k: v for k, v in os.environ.items() if k not in dropped} | {"CUDA_VISIBLE_DEVICES": ""}


def _install() -> None:
    print("installing SGLang for the CPU into .assizes/sglang (1.3 GB) ...", flush=True)
    run("making SGLang's environment", [sys.executable, "-m", "venv", SGLANG], cwd=CHECKOUT)
    try:
        _pip("torch_cpu.lock")
    except EmbeddedError:
        print("pip finds no CPU build of torch here: taking the one with CUDA's libraries (3 GB) ...", flush=True)
        _pip("torch_cuda.lock")
    _pip("requirements.lock")
    site = run(
        "asking for site-packages",
        [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        cwd=CHECKOUT,
    )
    shutil.copytree(RECIPE / "stand_ins", site.strip(), dirs_exist_ok=True)
    run("importing SGLang", [PYTHON, "-W", "ignore", RECIPE / "check_import.py"], cwd=CHECKOUT, env=environment())


def _pip(lock: str) -> None:
    """Install a lock. Not compiled: most modules are never imported, and the import check compiles those that are."""
    pip: list[str | Path] = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    pip += ["--no-compile", "--only-binary", ":all:", "--require-hashes", "-r", RECIPE / lock]
    run(f"installing {lock}", pip, cwd=CHECKOUT)


def _recipe_digest() -> str:
    """A hash over every file of the recipe and the version of this interpreter."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(RECIPE.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(str(path.relative_to(RECIPE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
