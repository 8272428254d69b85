"""The gate that a reappraisal passes: something is said, in at most two sentences and not at any length.

Guarantee: any text is gated, in time linear in its length. What goes to the library that finds sentences has at most
120 tokens of at most 20 characters, whatever was written.
Source: the model card of Reappraisal-4B-GRPO-Committee, whose reward gates outputs that are empty or longer than two
sentences. The cap on tokens is ours: it stops the one endless sentence of semicolons.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import sentencex

from services.vocabulary import Outcome

MOST_SENTENCES = 2
MOST_TOKENS = 120

# Chinese, Japanese and Korean characters, of which each is a token; Hangul syllables and jamo among them.
_CJK = "\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
_COMBINING = "".join(mark for mark in map(chr, range(0x10000)) if unicodedata.category(mark).startswith("M"))
_TOKEN = re.compile(rf"(?:[^\W_{_CJK}]|[{_COMBINING}]){{1,20}}|\S")

# What Python calls a line break, and the place before a bullet that is no other mark.
_LINE = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]|(?=[•‣⁃◦▪▫●○■□▸▹►])")
_LETTERED = re.compile(r"[a-z][.)]\s")
_ELLIPSIS = re.compile(r"…(?= ?(\w))")
# Ends of sentences that the library does not know: the rest of Unicode's property Sentence_Terminal, the Greek question
# mark, and the Tibetan shads.
_ENDS = "\u037e\u0f0d\u0f0e\u0f0f\u0f10\u0f11\u0f12\u17d4\u17d5\u1b4e\u1b4f\u1b7f\u2cf9\u2cfa\u2cfb\u2e60\u2e61"
_ENDS += "\ufe12\ufe15\ufe16\U000113d4\U000113d5\U00016d6e\U00016d6f"
# The library takes emphasis for text and apostrophes for quotation marks, which hide ends of sentences. A lone
# surrogate cannot be handed to it.
_PLAIN = (
    dict.fromkeys(map(ord, "*_`'‘’"))
    | dict.fromkeys(map(ord, _ENDS), "。")
    | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
)
_PAIRS = dict(zip('"“„«‹「『《〈【([{（［｛', '"”“»›」』》〉】)]}）］｝', strict=True))


@dataclass(frozen=True, slots=True)
class Gated:
    """What the gate says of a text: `accepted`, `empty` or `too_long`, and by which rule.

    `sentences` is how many it has, from 0; of a text over the cap on tokens, how many begin under it.
    """

    outcome: Outcome
    rule: str
    sentences: int


def gate(text: str) -> Gated:
    """Gate a text: no letter is `empty`; more than two sentences, or more than 120 tokens, is `too_long`.

    A token is a run of at most 20 letters and digits, with their combining marks, or any other character that is no
    white space; each Chinese, Japanese or Korean character is one.
    """
    if not _has_letter(text):
        return Gated(Outcome.EMPTY, "no_letter", 0)
    tokens = list(islice(_TOKEN.finditer(text), MOST_TOKENS + 1))
    is_over = len(tokens) > MOST_TOKENS
    sentences = sum(map(_has_letter, _segments(text[: tokens[MOST_TOKENS - 1].end()] if is_over else text)))
    if sentences > MOST_SENTENCES:
        return Gated(Outcome.TOO_LONG, "too_many_sentences", sentences)
    if is_over:
        return Gated(Outcome.TOO_LONG, "too_many_tokens", sentences)
    return Gated(Outcome.ACCEPTED, "within_limits", sentences)


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


def _segments(text: str) -> Iterator[str]:
    """What the library takes for sentences; pieces without a letter, such as a list's numbers, are among them."""
    for paragraph in _paragraphs(text):
        yield from _sentences(paragraph)


def _sentences(text: str) -> Iterator[str]:
    """The library looks into no quotation marks and no brackets: where a sentence is nothing but such, we do."""
    if (held := _held(text)) is not None:
        yield from _sentences(held)
        return
    for segment in sentencex.segment("en", _ELLIPSIS.sub(_dots_before_a_capital, text)):
        held = _held(segment)
        yield from [segment] if held is None else _sentences(held)


def _paragraphs(text: str) -> list[str]:
    """The lines, each one with those that go on with it: they start in lower case, and not as an item of a list.

    All white space becomes a blank: the library breaks down on some others next to a full stop.
    """
    paragraphs: list[str] = []
    for line in filter(str.strip, _LINE.split(text)):
        begin = line.lstrip()
        plain = " ".join(line.translate(_PLAIN).split())
        if paragraphs and begin[0].islower() and not _LETTERED.match(begin):
            paragraphs[-1] += f" {plain}"
        else:
            paragraphs.append(plain)
    return paragraphs


def _held(text: str) -> str | None:
    """What quotation marks and brackets hold of a text all of whose letters stand in some; None of any other text."""
    held: list[str] = []
    place = 0
    while place < len(text):
        if closing := _PAIRS.get(text[place]):
            end = _end(text, place, closing)
            held.append(text[place + 1 : end].strip())
            place = end
        elif text[place].isalpha():
            return None
        place += 1
    return " ".join(held) if held else None


def _end(text: str, place: int, closing: str) -> int:
    """Where the pair that opens at `place` ends, others of its kind within it; with the text where it is not closed."""
    opening, depth = text[place], 0
    for end in range(place + 1, len(text)):
        if text[end] == closing and not depth:
            return end
        depth += (text[end] == opening) - (text[end] == closing)
    return len(text)


def _dots_before_a_capital(ellipsis: re.Match[str]) -> str:
    """The library ends a sentence at three dots before a capital, and never at the one character."""
    return "..." if ellipsis[1].isupper() else ellipsis[0]
