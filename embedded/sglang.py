"""A real SGLang server's interpreter, for a CPU, in its own virtual environment `.assizes/sglang`.

Guarantee: `install` returns when that environment is whole and a server's modules import in it. Needs Linux on x86_64
with glibc 2.34 or later, and only the standard library: it may run while the application's environment is being made.

Torch comes as a small CPU build where pip finds one, else as PyPI's, which loads CUDA's libraries even where no GPU is.
"""

import os
import shutil
from pathlib import Path

from embedded.environments import ensure, pip_install
from embedded.places import CHECKOUT, HOME, SGLANG
from embedded.processes import EmbeddedError, run

RECIPE = Path(__file__).resolve().parent / "sglang_cpu"


def install() -> Path:
    """Make the environment if it is not there yet, and return its interpreter.

    Raises:
        EmbeddedError: a package could not be installed or SGLang does not import.
    """
    recipe = (path for path in RECIPE.rglob("*") if path.suffix in {".lock", ".py", ".pth"})
    return ensure(SGLANG, HOME / "sglang.lock", recipe, _fill)


def environment() -> dict[str, str]:
    """The environment for a process of that interpreter.

    `PYTHONDONTWRITEBYTECODE` would leave modules uncompiled and cost 16 s at each start; a `PYTHONPATH` would let
    foreign modules shadow SGLang's; with a GPU visible, a CUDA build of torch would choose it.
    """
    dropped = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {k: v for k, v in os.environ.items() if k not in dropped} | {"CUDA_VISIBLE_DEVICES": ""}


def _fill(python: Path) -> None:
    try:
        pip_install(python, RECIPE / "torch_cpu.lock")
    except EmbeddedError:
        print("pip finds no CPU build of torch here: taking the one with CUDA's libraries (3 GB) ...", flush=True)
        pip_install(python, RECIPE / "torch_cuda.lock")
    pip_install(python, RECIPE / "requirements.lock")
    site = run(
        "asking for site-packages",
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        cwd=CHECKOUT,
    )
    shutil.copytree(RECIPE / "stand_ins", site.strip(), dirs_exist_ok=True)
    # also compiles what a server imports; pip compiles nothing, since most of it is never imported
    run("importing SGLang", [python, "-W", "ignore", RECIPE / "check_import.py"], cwd=CHECKOUT, env=environment())
