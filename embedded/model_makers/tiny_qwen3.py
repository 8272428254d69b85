"""A random Qwen3 of 0.2 million parameters: the real architecture, answers without meaning, always the same weights.

usage: SGLANG_PYTHON tiny_qwen3.py DIR
"""

import sys
from pathlib import Path

import chatml_tokenizer
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM


def main(folder: Path) -> None:
    """Write the checkpoint in bfloat16, with its tokenizer, to `folder`."""
    tokenizer = chatml_tokenizer.make()
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
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
            tie_word_embeddings=True,
        )
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
