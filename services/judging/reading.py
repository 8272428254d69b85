"""What a protocol makes of one completion, and the rules that families share.

Guarantee: a reading never invents a value. What could not be read is an outcome with a reason, not a number. Reading is
total and takes time linear in the completion, whatever a model (or whoever steered it) wrote.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from services.vocabulary import FinishReason, Flag, Outcome, Winner


@dataclass(frozen=True, slots=True)
class Seen:
    """A place in a completion that looked like an answer. `span` counts code points, end excluded."""

    text: str
    span: tuple[int, int]
    valid: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """One completion, read. The frame is the judge's: `A` is the first slot.

    `winner` is None unless the outcome is `decided` or `tie`, and always for a pointwise family. `rule` names the rule
    that decided, `span` where it read (code points in the raw completion), `seen` every other candidate answer.
    `seed_verdict` is what the loose rule published with the model would have said; it never enters an opinion unless
    the job asks for it. `scores` stand by slot, in the family's own grades; `ranking` is 1 (first slot much better) to
    6, or -1 (both bad); `form` says which of a family's forms of answer it was. Of a text that was written, `span` is
    where it stands and `sentences` how many it has.
    """

    outcome: Outcome
    winner: Winner | None
    rule: str
    flags: frozenset[Flag] = frozenset()
    span: tuple[int, int] | None = None
    seen: tuple[Seen, ...] = ()
    seed_verdict: Winner | None = None
    scores: tuple[float, ...] = ()
    ranking: int | None = None
    form: str | None = None
    sentences: int | None = None

    @property
    def answered(self) -> bool:
        """True for an answer, a tie among them, and for a text that passed its gate."""
        return self.outcome in (Outcome.DECIDED, Outcome.TIE, Outcome.ACCEPTED)

    def as_json(self) -> dict[str, Any]:
        """The reading as a trace keeps it. Spans stand for texts: the completion beside it holds them."""
        return {
            "outcome": self.outcome,
            "winner": self.winner,
            "rule": self.rule,
            "flags": sorted(self.flags),
            "span": self.span,
            "seen": [{"span": seen.span, "valid": seen.valid} for seen in self.seen],
            "seed_verdict": self.seed_verdict,
            "scores": list(self.scores),
            "ranking": self.ranking,
            "form": self.form,
            "sentences": self.sentences,
        }


# What may stand around a label: Unicode's White_Space, quotes, brackets and markdown emphasis. Neither zero-width
# characters nor `~`: a model that writes those writes no plain label.
_MARKS = "\t\n\v\f\r\x85\"'`*_<>＂＇｀＊＿＜＞" + "".join(
    mark
    for mark in map(chr, range(0x10000))
    if unicodedata.category(mark) in {"Ps", "Pe", "Pi", "Pf", "Zs", "Zl", "Zp"}
)
_FULL_STOPS = (".", "。", "．", "｡")
_LONGEST_LABEL = 64
_NAMING = ("assistant", "response", "answer", "option")
_TIES = frozenset({"tie", "equal", "both", "neither"})


class Labels(Protocol):
    """The answers that a verdict may give.

    `names` are what may be forced: of a pair the first slot, the second slot and, where it is an answer, "tie"; of a
    single candidate its grades, from the least on. No name may begin with another.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """What may be forced."""
        ...

    def match(self, content: str) -> Winner | int | None:
        """The answer that a verdict's content is, or None when it is anything else."""
        ...


def _bare(content: str) -> str:
    """A label without what may stand around it: marks again and again, one full stop; then NFKC, in lower case."""
    core = content.strip(_MARKS)
    if core.endswith(_FULL_STOPS):
        core = core[:-1].strip(_MARKS)
    if len(core) > _LONGEST_LABEL:
        return ""
    return unicodedata.normalize("NFKC", core).strip(_MARKS).lower()


@dataclass(frozen=True, slots=True)
class GradeSet:
    """The grades of a rubric as answers: whole numbers from 1 on, each written as its name, in any case."""

    names: tuple[str, ...]

    def match(self, content: str) -> int | None:
        """The grade that a block's content is, marks around it aside; None when it is anything else."""
        word = _bare(content)
        return next((grade for grade, name in enumerate(self.names, start=1) if name.lower() == word), None)


@dataclass(frozen=True, slots=True)
class LabelSet:
    """The answers that a verdict block may hold: a name for each slot, and whether a tie is an answer."""

    first: str = "A"
    second: str = "B"
    tie: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """First slot, second slot, and "tie" where it is an answer."""
        return (self.first, self.second, "tie") if self.tie else (self.first, self.second)

    def match(self, content: str) -> Winner | None:
        """The answer that a block's content is, or None when it is anything else.

        Marks around it come off again and again, and one full stop; then NFKC; then it is a label's name in any case,
        alone or after "Assistant", "Response", "Answer" or "Option", or a whole word for a tie.
        """
        word = _bare(content)
        if self.tie and word in _TIES:
            return Winner.TIE
        sides = {self.first.lower(): Winner.A, self.second.lower(): Winner.B}
        for naming in ("", *_NAMING):
            rest = word.removeprefix(naming)
            bare = rest.lstrip(_MARKS).removeprefix(":").lstrip(_MARKS) if naming else word
            if (not naming or rest not in (word, bare)) and bare in sides:
                return sides[bare]
        return None


@dataclass(frozen=True, slots=True)
class VerdictForm:
    """How a family's verdict is written: a label between an opening and a closing tag.

    To force one, `opening` is written after the judge's own text (direct mode: after the generation prompt).
    """

    tag: str
    labels: Labels

    @property
    def opening(self) -> str:
        """The opening tag."""
        return f"<{self.tag}>"


def label_start(labels: Labels, content: str) -> int:
    """Where the label begins in a content that matches: behind the marks and the naming. 0 where nothing matches.

    It is the shortest rest of the content that still is the same answer.
    """
    answer = labels.match(content)
    begin = len(content) - len(content.lstrip(_MARKS))
    starts = range(begin, begin + _LONGEST_LABEL) if answer is not None else ()
    return max((start for start in starts if labels.match(content[start:]) == answer), default=0)


def answer_start(completion: str, *, thinks: bool) -> int | None:
    """Where the answer begins: after the last `</think>`. None when thinking was opened and never closed.

    A protocol that thinks has its `<think>` in the prompt, so its completion holds the closing tag only.
    """
    closing = completion.rfind("</think>")
    start = 0 if closing < 0 else closing + len("</think>")
    is_open = (thinks and closing < 0) or completion.find("<think>", start) >= 0
    return None if is_open else start


def read_verdict(completion: str, finish_reason: FinishReason, form: VerdictForm, *, thinks: bool) -> Reading:
    """Read the last valid block of the form's tag. There is no fallback to prose.

    Source: the shared reading rules; the model card of SDRM-Qwen3-4B-mask70 asks for the tag and for A or B only.
    """
    compares = form.labels.names[:2] == ("A", "B") and form.labels.match("A") is Winner.A
    seed = seed_verdict(completion) if compares else None
    start = answer_start(completion, thinks=thinks)
    thinking = frozenset({Flag.THINK_UNCLOSED}) if start is None else frozenset[Flag]()
    if finish_reason is FinishReason.ABORT:
        return Reading(Outcome.ABORTED, None, "aborted", thinking, seed_verdict=seed)
    unread = Outcome.TRUNCATED if finish_reason is FinishReason.LENGTH else Outcome.UNPARSEABLE
    if start is None:
        return Reading(unread, None, "thinking_unclosed", thinking, seed_verdict=seed)

    found = []
    for begin, end, closed in _blocks(completion, start, form.tag):
        content = completion[begin:end]
        # A stop string eats the closing tag; a cut by length may have eaten more than that.
        answer = form.labels.match(content) if closed or finish_reason is FinishReason.STOP else None
        rule = f"{form.tag}_block" if closed else f"{form.tag}_block_unclosed"
        found.append((answer, rule, Seen(content, (begin, end), answer is not None)))
    valid = [block for block in found if block[0] is not None]
    if not valid:
        rule = "no_valid_block" if found else "no_block"
        return Reading(unread, None, rule, seen=tuple(seen for _, _, seen in found), seed_verdict=seed)
    answer, rule, last = valid[-1]
    return Reading(
        Outcome.TIE if answer is Winner.TIE else Outcome.DECIDED,
        answer if isinstance(answer, Winner) else None,
        rule,
        frozenset({Flag.CONFLICTING}) if len({block[0] for block in valid}) > 1 else frozenset(),
        last.span,
        tuple(seen for _, _, seen in found if seen is not last),
        seed,
        scores=(answer,) if isinstance(answer, int) else (),
    )


def unfinished(completion: str, form: VerdictForm, *, thinks: bool) -> str:
    """A completion without a valid verdict, made ready for one: thinking closed, a half-written block taken off.

    What comes next is the opening tag of a forced verdict. Without a completion this is what a direct verdict follows.
    """
    start = answer_start(completion, thinks=thinks)
    if start is None:
        return completion.rstrip() + "\n</think>\n\n"
    for begin, end, closed in _blocks(completion, start, form.tag):
        content = completion[begin:end]
        if not closed and (form.labels.match(content) is not None or not content.strip()):
            completion = completion[: completion.rfind("<", start, begin)]
    written = completion.rstrip()
    return f"{written}\n\n" if written else ""


def before_label(completion: str, span: tuple[int, int], labels: Labels) -> str:
    """A completion up to the label that was read in `span`: what its verdict token was drawn after."""
    begin, end = span
    return completion[: begin + label_start(labels, completion[begin:end])]


def seed_verdict(completion: str) -> Winner | None:
    """The loose rule published with SDRM-Qwen3-4B-mask70: the last word A or B of the last block, else of all the text.

    Equal to its `parse_verdict` on every text, in linear time.
    """
    block, position = "", 0
    while (begin := completion.find("<verdict>", position)) >= 0:
        begin += len("<verdict>")
        end = completion.find("</verdict>", begin)
        if end < 0:
            break
        block, position = completion[begin:end], end + len("</verdict>")
    letter = _last_letter(block) or _last_letter(completion)
    return Winner(letter) if letter else None


def _last_letter(text: str) -> str | None:
    match = re.search(r"\b[AB]\b", text[::-1])
    return match[0] if match else None


def _blocks(text: str, start: int, tag: str) -> Iterator[tuple[int, int, bool]]:
    """The blocks after `start` as (begin, end, closed): each runs from the last opening tag before a closing one.

    An opening tag that nothing closes runs to the end of the text.
    """
    opened = None
    for found in _tag(tag).finditer(text, start):
        if not found[1]:
            opened = found.end()
        elif opened is not None:
            yield opened, found.start(), True
            opened = None
    if opened is not None:
        yield opened, len(text), False


@cache
def _tag(name: str) -> re.Pattern[str]:
    # ASCII: otherwise a dotless i would be an i here. Possessive: blanks are never given back.
    return re.compile(rf"<(/?){re.escape(name)}\s*+>", re.IGNORECASE | re.ASCII)
