"""Small tokenizers of the two shapes that the shipped judges have, trained here on Python's own sources."""

import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WITH_SYSTEM_PROMPT = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}" + CHATML
)
TRIMMING_AND_THINKING = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + (message['content'] | trim) }}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)

# Words are split as Qwen 2 and 3 publish it in their tokenizer.json.
QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_ADDED = {
    **dict.fromkeys(("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>"), True),
    **dict.fromkeys(("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_suffix|>", "<|file_sep|>"), False),
    **dict.fromkeys(("<tool_response>", "</tool_response>", "<think>", "</think>"), False),
}
SMOLLM_ADDED = dict.fromkeys(
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<file_sep>", "<gh_stars>", "<empty_output>"), True
)


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    """A few hundred kB of text in which verdicts occur, as they do in what instruct models were trained on."""
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:25]
    verdicts = ["The better answer is:\n<verdict>A</verdict>\n<verdict>B</verdict> 你好 naïve 🙂"] * 200
    return [source.read_text(encoding="utf-8") for source in sources] + verdicts


@pytest.fixture(scope="session")
def smollm(corpus: list[str]) -> PreTrainedTokenizerFast:
    """As SmolLM2 has it: GPT-2's words, digits apart, all added tokens special and part of the BPE's own vocabulary."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return _trained(bpe, corpus, SMOLLM_ADDED, in_vocabulary=True, template=WITH_SYSTEM_PROMPT)


@pytest.fixture(scope="session")
def qwen(corpus: list[str]) -> PreTrainedTokenizerFast:
    """As Qwen3 has it: NFC, Qwen's words, added tokens outside the BPE's vocabulary, some of them not special."""
    return _trained(_qwen_words(), corpus, QWEN_ADDED, in_vocabulary=False, template=CHATML)


@pytest.fixture(scope="session")
def thinking_qwen(corpus: list[str]) -> PreTrainedTokenizerFast:
    """The same with a template that trims what it is given and opens the judge's thinking."""
    return _trained(_qwen_words(), corpus, QWEN_ADDED, in_vocabulary=False, template=TRIMMING_AND_THINKING)


def _qwen_words() -> Tokenizer:
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return bpe


def _trained(
    bpe: Tokenizer, corpus: list[str], added: Mapping[str, bool], *, in_vocabulary: bool, template: str
) -> PreTrainedTokenizerFast:
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=list(added) if in_vocabulary else [],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus, trainer)
    bpe.add_tokens([AddedToken(text, special=special, normalized=False) for text, special in added.items()])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = template
    return tokenizer
