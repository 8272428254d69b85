"""A small byte-level BPE tokenizer that speaks ChatML, trained on the language topics that every CPython ships.

Any text comes back unchanged, since every byte is in the alphabet. Deterministic for one Python and one `tokenizers`.

usage: PYTHON chatml_tokenizer.py DIR     (any environment with transformers; torch is not needed)
"""

import sys
from pathlib import Path
from pydoc_data.topics import topics

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

_VOCABULARY = 2048
_SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make() -> PreTrainedTokenizerFast:
    """Train the tokenizer: 2,048 tokens, `<|im_end|>` ends a turn."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=_SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator((topics[name] for name in sorted(topics)), trainer)
    pad, _, end = _SPECIAL_TOKENS
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=end, pad_token=pad, model_max_length=32768)
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


if __name__ == "__main__":
    make().save_pretrained(Path(sys.argv[1]))
