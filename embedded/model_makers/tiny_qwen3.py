"""A random Qwen3 of 0.2 million parameters: the real architecture, answers without meaning, one seed the same weights.

usage: SGLANG_PYTHON tiny_qwen3.py DIR writer|reward SEED     (a reward model has a head of one number)
"""

import sys
from pathlib import Path
from typing import Any

import chatml_tokenizer
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3ForSequenceClassification

_KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "writer": (Qwen3ForCausalLM, {"tie_word_embeddings": True}),
    "reward": (Qwen3ForSequenceClassification, {"num_labels": 1}),
}


def main(folder: Path, kind: str, seed: int) -> None:
    """Write the checkpoint in bfloat16, with its tokenizer, to `folder`."""
    architecture, options = _KINDS[kind]
    tokenizer = chatml_tokenizer.make()
    torch.manual_seed(seed)
    model = architecture(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=2048,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            **options,
        )
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
