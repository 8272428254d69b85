"""Prompts as token ids, parameterised like SQL: what a caller wrote can never become a control token.

Guarantee: the ids hold exactly the added tokens that the chat template itself writes, whatever the messages contain.
Where no message spells one, they equal the tokenizer's own `apply_chat_template(tokenize=True)`, with the opening of an
answer behind the last turn or without. Every id lies inside the model's vocabulary: one outside it kills an SGLang
server.

How: in every message the spellings of added tokens, and its first and last character, give way to sentinels; the chat
template renders the rest, so that its own trimming applies; the result is split at the added tokens, which are all the
template's now; the sentinels turn back; each fragment is encoded by a copy of the tokenizer that knows no added token.
(The tokenizer's `split_special_tokens` leaves added tokens alive that are not special, such as Qwen3's `</think>`.)
"""

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import TYPE_CHECKING

from jinja2 import TemplateError
from tokenizers import Tokenizer

from services.foundation.errors import Misconfigured
from services.judging.protocol import Message
from services.judging.runtime import Label

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_SURROGATE = re.compile("[\ud800-\udfff]")
_PROBE = (Message("user", "Is it so?\nWhich of the two, then: A or B?"),)


class UnsupportedTokenizer(Misconfigured):
    """The guarantees above, or a forced verdict, cannot be had with this tokenizer."""

    code = "unsupported_tokenizer"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation. `text` is what `ids` spell; lone surrogates stand in it as U+FFFD.

    `refused` says why this conversation cannot be asked with: then there are no ids and no text.
    """

    ids: list[int]
    text: str
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """What is written after a prompt's ids before a label, and the tokens that may follow."""

    ids: list[int]
    labels: tuple[Label, ...]


class Renderer:
    """Renders the prompts of one model. Safe to share between threads."""

    def __init__(
        self, tokenizer: "PreTrainedTokenizerFast", vocabulary_size: int, *, generation_prompt: bool = True
    ) -> None:
        """`vocabulary_size` is the model's own: rows of its embedding, not entries of the tokenizer.

        `generation_prompt`: whether a prompt ends with the opening of an answer, or, for a model that scores a
        conversation, with its last turn. Raises UnsupportedTokenizer.
        """
        added = tokenizer.added_tokens_decoder
        self._template = tokenizer
        self._vocabulary_size = vocabulary_size
        self._generation_prompt = generation_prompt
        self._ids = {token.content: number for number, token in added.items()}
        self._takes_before = {token.content for token in added.values() if token.lstrip}
        self._takes_after = {token.content for token in added.values() if token.rstrip}
        self._added = _any_of(self._ids)
        self._thinking = _any_of({"<think>", "</think>"} & self._ids.keys())
        self._plain = _without_added_tokens(tokenizer.backend_tokenizer)
        self._prove()

    def render(self, messages: Sequence[Message]) -> Prompt:
        """One conversation of ours, ready for the model's answer, or its score. Raises UnsupportedTokenizer."""
        (prompt,) = self.render_many([messages])
        if prompt.refused is not None:
            raise UnsupportedTokenizer(prompt.refused)
        return prompt

    def render_many(self, conversations: Iterable[Sequence[Message]]) -> list[Prompt]:
        """Many conversations, their texts tokenised in one go. All contents are taken for hostile.

        One that cannot be asked with is refused alone: the chat template takes no such conversation, or it spells a
        token that the model does not have.
        """
        sentinels = _Sentinels()
        rendered, refusals = [], []
        for messages in conversations:
            try:
                pieces, refused = self._pieces(messages, sentinels), None
            except TemplateError as error:
                said = sentinels.reveal(str(error))
                pieces, refused = [], f"the chat template refuses what it is given: {said}"
            rendered.append(pieces)
            refusals.append(refused)
        prompts = []
        for ids, pieces, refused in zip(self._encode(rendered), rendered, refusals, strict=True):
            why = refused or self._foreign(ids)
            prompts.append(Prompt(ids, "".join(pieces)) if why is None else Prompt([], "", why))
        return prompts

    def opening(self, written: str, labels: Sequence[str]) -> Opening:
        """What is written between a prompt and a forced label: the judge's own text, down to its verdict's opening tag.

        Where a tokenizer joins the end of it to a label (`>A` is one token for Qwen's), the join is left to the label.
        In the judge's own text thinking tags are control tokens, as they are for the reading; nothing else is.
        Raises UnsupportedTokenizer when two labels begin with the same token, or one that the model does not have.
        """
        before = _SURROGATE.sub("\ufffd", written)
        spellings = self._encode([self._thinking.split(before + label) for label in labels])
        common = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*spellings, strict=False)))
        first = [ids[common] for ids in spellings if len(ids) > common]
        if (foreign := self._foreign([*chain.from_iterable(spellings)])) is not None:
            raise UnsupportedTokenizer(foreign)
        if len(set(first)) < len(labels):
            raise UnsupportedTokenizer(f"the labels {' and '.join(labels)} begin with the same token")
        named = zip(labels, first, strict=True)
        tokens = tuple(
            Label(name, token, self._plain.decode([token], skip_special_tokens=False)) for name, token in named
        )
        return Opening(spellings[0][:common], tokens)

    def _pieces(self, messages: Sequence[Message], sentinels: "_Sentinels") -> list[str]:
        """A conversation as an alternation of fragments and added tokens that begins and ends with a fragment.

        Raises jinja2's TemplateError where the chat template takes no such conversation.
        """
        hidden = [{"role": turn.role, "content": self._hide(turn.content, sentinels)} for turn in messages]
        text = self._template.apply_chat_template(hidden, tokenize=False, add_generation_prompt=self._generation_prompt)
        assert isinstance(text, str)
        pieces = self._added.split(text)
        pieces[::2] = map(sentinels.reveal, pieces[::2])
        return pieces

    def _hide(self, text: str, sentinels: "_Sentinels") -> str:
        """The text with every spelling of an added token hidden, and both ends, so that none forms across them."""
        text = _SURROGATE.sub("\ufffd", text)
        core = text.strip()
        if not core:
            return text
        begin = text.index(core)
        middle = self._added.sub(lambda token: sentinels.hide(token[0]), core[1:-1])
        last = sentinels.hide(core[-1]) if len(core) > 1 else ""
        return text[:begin] + sentinels.hide(core[0]) + middle + last + text[begin + len(core) :]

    def _encode(self, texts: Sequence[Sequence[str]]) -> list[list[int]]:
        """The ids of texts given as alternations of fragments and added tokens."""
        fragments = []
        for pieces in texts:
            for i in range(0, len(pieces), 2):
                fragment = pieces[i]
                if i and pieces[i - 1] in self._takes_after:
                    fragment = fragment.lstrip()
                if i + 1 < len(pieces) and pieces[i + 1] in self._takes_before:
                    fragment = fragment.rstrip()
                fragments.append(fragment)
        encoded = iter(self._plain.encode_batch_fast(fragments, add_special_tokens=False))
        result = []
        for pieces in texts:
            ids: list[int] = []
            for i, piece in enumerate(pieces):
                if i % 2:
                    ids.append(self._ids[piece])
                else:
                    ids += next(encoded).ids
            result.append(ids)
        return result

    def _foreign(self, ids: Sequence[int]) -> str | None:
        """What is wrong with ids of which the model does not have all; None where it has."""
        last = max(ids, default=0)
        if last < self._vocabulary_size:
            return None
        return f"the token {last} lies outside the model's vocabulary of {self._vocabulary_size}"

    def _prove(self) -> None:
        """Try the guarantees on this very tokenizer, once. Raises UnsupportedTokenizer."""
        numbers = set(self._ids.values())
        for spelling in self._ids:
            if not numbers.isdisjoint(self._plain.encode(spelling, add_special_tokens=False).ids):
                raise UnsupportedTokenizer(f"the plain text {spelling} becomes a control token")
        conversation = _PROBE if self._generation_prompt else (*_PROBE, Message("assistant", "A it is."))
        rendered = self.render(conversation).ids
        own = self._template.apply_chat_template(
            [{"role": turn.role, "content": turn.content} for turn in conversation],
            add_generation_prompt=self._generation_prompt,
            return_dict=False,
        )
        if rendered != own:
            raise UnsupportedTokenizer("this tokenizer's chat template cannot be rendered in fragments")


class _Sentinels:
    """Stand-ins for strings: private-use characters, drawn at random so that no caller can forge one."""

    def __init__(self) -> None:
        self._nonce = "".join(chr(0xE000 + secrets.randbelow(0x1900)) for _ in range(8))
        self._stand_in = re.compile(f"{self._nonce}(.)", re.DOTALL)
        self._numbers: dict[str, int] = {}
        self._originals: list[str] = []

    def hide(self, original: str) -> str:
        if original not in self._numbers:
            self._numbers[original] = len(self._originals)
            self._originals.append(original)
        return self._nonce + chr(0xF0000 + self._numbers[original])

    def reveal(self, text: str) -> str:
        return self._stand_in.sub(lambda match: self._originals[ord(match[1]) - 0xF0000], text)


def _without_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    copy = json.loads(tokenizer.to_str()) | {"added_tokens": [], "truncation": None, "padding": None}
    if copy["model"]["type"] == "BPE":
        # The token for unknown characters is an added token too: a caller could write it by a character.
        copy["model"]["unk_token"] = None
    return Tokenizer.from_str(json.dumps(copy))


def _any_of(spellings: Iterable[str]) -> re.Pattern[str]:
    """Any of these strings, the longest where several begin; nothing when there are none."""
    longest_first = sorted(spellings, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
