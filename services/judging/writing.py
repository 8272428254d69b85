"""Writing: all the calls by which one model writes the candidates of one item.

Guarantee: pure. Every text that was written is kept with what its gate made of it; a candidate whose text did not pass
is written anew as often as the options allow.
"""

from dataclasses import dataclass
from typing import Any

from services.judging.heard import Heard, hear_text
from services.judging.pairings import Seating
from services.judging.proceeding import CallKey, Spent, spent
from services.judging.protocol import Family, Message, Showing
from services.judging.runtime import Completion
from services.vocabulary import Flag, Order, Outcome

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


class Writing:
    """One model, one scenario. See Proceeding."""

    def __init__(self, family: Family, scenario: str, candidates: int, retries: int) -> None:
        """`retries`: how often a candidate that does not pass the gate is written anew."""
        self._family = family
        self._showing = Showing((Message("user", scenario),), ())
        self._attempts = 1 + retries
        self._heard: list[list[Heard]] = [[] for _ in range(candidates)]
        self._open = dict.fromkeys(CallKey(number, Order.AB, 0, forced=False) for number in range(candidates))

    def showing(self, key: CallKey) -> Showing:  # noqa: ARG002 - every call shows the same
        """See Proceeding."""
        return self._showing

    def seating(self, key: CallKey) -> Seating:
        """The candidate that this call writes."""
        return Seating(key.match, key.order, (key.match,))

    def open_calls(self) -> list[CallKey]:
        """See Proceeding."""
        return list(self._open)

    def is_open(self, key: CallKey) -> bool:
        """See Proceeding."""
        return key in self._open

    def written_before(self, key: CallKey) -> str:
        """See Proceeding. Nothing is forced here."""
        raise ValueError(f"{key} cannot be forced: what is written has no labels")

    def read(self, key: CallKey, completion: Completion) -> Heard:  # noqa: ARG002 - every call is read alike
        """See Proceeding."""
        return hear_text(self._family, completion, "strict")

    def record(self, key: CallKey, heard: Heard) -> list[CallKey]:
        """See Proceeding."""
        if key not in self._open:
            raise ValueError(f"{key} is not open in this writing")
        del self._open[key]
        self._heard[key.match].append(heard)
        if heard.outcome not in CURABLE or key.sample + 1 == self._attempts:
            return []
        again = CallKey(key.match, key.order, key.sample + 1, forced=False)
        self._open[again] = None
        return [again]

    @property
    def ended(self) -> bool:
        """See Proceeding."""
        return not self._open

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
