"""The small models and the tokenizer that the embedded stack and the tests use, in `.assizes/models/NAME`.

Guarantee: a folder there is whole and made by the present maker, or it is not there. Nothing is downloaded: the makers
in `embedded/model_makers/` take what installed packages carry.
"""

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal

from embedded import sglang
from embedded.places import CHECKOUT, MODELS, exclusively
from embedded.processes import run

_MAKERS = Path(__file__).resolve().parent / "model_makers"
# a maker's file, and what it takes besides the folder
_MAKER_OF = {
    "smollm2": ("smollm2.py",),
    "tiny-qwen3": ("tiny_qwen3.py", "writer", "0"),
    "tiny-rm-0": ("tiny_qwen3.py", "reward", "0"),
    "tiny-rm-1": ("tiny_qwen3.py", "reward", "1"),
    "scripted": ("chatml_tokenizer.py",),
}

ModelName = Literal["smollm2", "tiny-qwen3", "tiny-rm-0", "tiny-rm-1", "scripted"]


def make(name: ModelName) -> Path:
    """Make a model folder if it is not there yet, and return it.

    `smollm2` (SmolLM2-135M-Instruct), `tiny-qwen3` and the reward models `tiny-rm-0` and `tiny-rm-1` (random weights)
    are checkpoints and need SGLang's environment. `scripted` is only a tokenizer, which the application's own
    environment makes.

    Raises:
        EmbeddedError: its maker failed.
    """
    folder = MODELS / name
    maker, *arguments = _MAKER_OF[name]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_MAKERS.glob("*.py")))).hexdigest()
    marker = folder / "made_by"
    with exclusively(MODELS / f"{name}.lock"):
        if not (marker.exists() and marker.read_text() == digest):
            print(f"making {name} in .assizes/models ...", flush=True)
            python = Path(sys.executable) if name == "scripted" else sglang.install()
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=MODELS) as scratch:
                made = Path(scratch) / name
                command: list[str | Path] = [python, "-W", "ignore", _MAKERS / maker, made, *arguments]
                run(f"making {name}", command, cwd=CHECKOUT, env=sglang.environment())
                (made / marker.name).write_text(digest)
                shutil.rmtree(folder, ignore_errors=True)
                made.rename(folder)
    return folder
