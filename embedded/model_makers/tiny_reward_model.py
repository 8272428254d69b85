"""A random reward model of 0.2 million parameters: a Qwen3 with a head of one number, the same weights for a seed.

usage: SGLANG_PYTHON tiny_reward_model.py DIR SEED
"""

import sys
from pathlib import Path

import chatml_tokenizer
import torch
from transformers import Qwen3Config, Qwen3ForSequenceClassification


def main(folder: Path, seed: int) -> None:
    """Write the checkpoint in bfloat16, with its tokenizer, to `folder`."""
    tokenizer = chatml_tokenizer.make()
    torch.manual_seed(seed)
    model = Qwen3ForSequenceClassification(
        Qwen3Config(
            num_labels=1,
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
        )
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
