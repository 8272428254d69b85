"""Writing: all the calls by which one model writes the candidates of one item.

Guarantee: pure. Every text that was written is kept with what its gate made of it; a candidate whose text did not pass
is written anew as often as the options allow.
"""

from dataclasses import dataclass
from typing import Any

from services.judging.heard import Heard
from services.judging.proceeding import CallKey, Spent, TextByText, spent
from services.judging.protocol import Family, Message, Showing
from services.vocabulary import Flag, Outcome

# What another attempt may cure. A prompt that does not fit, or that the runtime refuses, will not fit the next time.
CURABLE = frozenset({Outcome.EMPTY, Outcome.TOO_LONG, Outcome.TRUNCATED, Outcome.UNPARSEABLE})


@dataclass(frozen=True, slots=True)
class Text:
    """What one call wrote: which `candidate` at which `attempt`, from 0. `text` is the answer alone, stripped.

    `sentences` is None where nothing was read.
    """

    candidate: int
    attempt: int
    outcome: Outcome
    text: str
    sentences: int | None

    def as_json(self) -> dict[str, Any]:
        """The text as it is stored."""
        return {
            "candidate": self.candidate,
            "attempt": self.attempt,
            "outcome": self.outcome,
            "text": self.text,
            "sentences": self.sentences,
        }


@dataclass(frozen=True, slots=True)
class Written:
    """All that a model wrote for an item, candidate by candidate, attempt by attempt, and what that took.

    `flags` are the scenario's and those of all that was written.
    """

    texts: tuple[Text, ...]
    flags: frozenset[Flag]
    spent: Spent


class Writing(TextByText):
    """One model, one scenario: each text is a candidate. See Proceeding."""

    def __init__(self, family: Family, scenario: str, candidates: int, retries: int) -> None:
        """`retries`: how often a candidate that does not pass the gate is written anew."""
        super().__init__(family, candidates)
        self._showing = Showing((Message("user", scenario),), ())
        self._attempts = 1 + retries
        self._heard: list[list[Heard]] = [[] for _ in range(candidates)]

    def showing(self, key: CallKey) -> Showing:  # noqa: ARG002 - every call shows the same
        """See Proceeding."""
        return self._showing

    def _take_down(self, key: CallKey, heard: Heard) -> list[CallKey]:
        self._heard[key.match].append(heard)
        if heard.outcome not in CURABLE or key.sample + 1 == self._attempts:
            return []
        return [CallKey(key.match, key.order, key.sample + 1, forced=False)]

    def written(self) -> Written:
        """What was written so far."""
        texts = [
            _text(candidate, attempt, heard)
            for candidate, attempts in enumerate(self._heard)
            for attempt, heard in enumerate(attempts)
        ]
        heard = [heard for attempts in self._heard for heard in attempts]
        suspected = self._family.injection_suspected(self._showing)
        flags = frozenset({Flag.INJECTION_SUSPECTED}) if suspected else frozenset[Flag]()
        return Written(tuple(texts), flags.union(*(one.reading.flags for one in heard)), spent(heard))


def _text(candidate: int, attempt: int, heard: Heard) -> Text:
    begin, end = heard.reading.span or (0, 0)
    return Text(candidate, attempt, heard.outcome, heard.text[begin:end], heard.reading.sentences)
