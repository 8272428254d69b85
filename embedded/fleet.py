"""The fleet of the embedded stack: one judge, `smollm2`, in direct mode.

Guarantee: the same model name and the same way of asking, whether the real SGLang answers or the scripted runtime.
"""

import json
from pathlib import Path

from embedded import models, sglang

MODEL = "smollm2"
_CONTEXT_LENGTH = 8192


def real_fleet() -> str:
    """The fleet file with which a worker launches SmolLM2-135M-Instruct on the CPU. Installs what that needs."""
    python = sglang.install()
    return _fleet(
        models.make("smollm2"),
        gpus=0,
        python=str(python),
        # A CPU without bfloat16 arithmetic emulates it: there float32 reads prompts four times as fast. And bfloat16's
        # logits are so coarse that the two orders of a comparison often cancel out to an exact tie.
        # The KV cache would be sized by the machine's memory, and an idle scheduler would poll on a core.
        launch=["--device", "cpu", "--dtype", "float32", "--max-total-tokens", "16384", "--sleep-on-idle"],
    )


def scripted_fleet(url: str) -> str:
    """The fleet file with which a worker attaches to a scripted runtime."""
    return _fleet(models.make("scripted"), url=url)


def scripted_arguments(port: int) -> list[str]:
    """The command line of the scripted runtime that serves that fleet."""
    arguments = ["scripted", "--port", str(port), "--model", MODEL, "--tokenizer", str(models.make("scripted"))]
    return [*arguments, "--context-length", str(_CONTEXT_LENGTH), "--slots", "16"]


def _fleet(weights: Path, **entry: object) -> str:
    entry = {"protocol": "sdrm", "weights": str(weights), "context_length": _CONTEXT_LENGTH, **entry}
    lines = [f"[models.{MODEL}]", 'options = { mode = "direct" }']
    # JSON's texts, numbers and lists are TOML's too
    lines += [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
    return "\n".join(lines) + "\n"
