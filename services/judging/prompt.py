"""Prompts as token ids, parameterised like SQL: what a caller wrote can never become a control token.

Guarantee: the ids hold exactly the control tokens of the chat template itself, whatever the messages contain. Where no
message holds the spelling of one, they equal the tokenizer's own `apply_chat_template(tokenize=True)`. Every id lies
inside the model's vocabulary.

How: in every message the spellings of added tokens, and its first and last character, give way to sentinels; the chat
template renders the rest, so that its own trimming applies; the result is split at the added tokens, which are all the
template's now; the sentinels turn back; and each fragment is encoded by a copy of the tokenizer that knows no added token.
(`split_special_tokens` is not enough: it leaves added tokens alive that are not special, such as Qwen3's `</think>`.)
"""

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from json import dumps, loads
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from services.foundation.errors import Misconfigured
from services.judging.protocol import Message, VerdictForm
from services.judging.runtime import Label

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_SURROGATE = re.compile("[\ud800-\udfff]")
_THINKING = ("<think>", "</think>")
_PROBE = (Message("user", "Is it so?\nWhich of the two, then: A or B?"),)
