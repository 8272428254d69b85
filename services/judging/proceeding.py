"""What a model is asked about one item: a state machine that others drive.

Guarantee: pure. What may be asked next follows from the options and from what was heard alone, so a proceeding rebuilt
from stored traces goes on exactly where it stopped.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from services.judging.heard import Heard, hear_text
from services.judging.pairings import Seating
from services.judging.protocol import Family, Showing
from services.judging.runtime import Completion
from services.vocabulary import Order

MOST_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class CallKey:
    """The place of a call in its proceeding. `forced`: one token out of the labels, after what was written before.

    `match` numbers the pair, or the one text that is graded, scored or written; `sample` counts the calls for it, which
    are attempts where it is written. When reasoning, a forced call is a follow-up: of a text without a verdict, to
    force one; of a text with one, for its probability.
    """

    match: int
    order: Order
    sample: int
    forced: bool

    @property
    def number(self) -> int:
        """Unique and stable within item and judge; a follow-up comes right after the call that it follows."""
        return (self.match * MOST_SAMPLES + self.sample) * 4 + self.order.swapped * 2 + self.forced

    @classmethod
    def from_number(cls, number: int) -> "CallKey":
        """The key that has this number."""
        match, sample = divmod(number // 4, MOST_SAMPLES)
        return cls(match, Order.BA if number & 2 else Order.AB, sample, bool(number & 1))

    @property
    def turn(self) -> tuple[int, int]:
        """Where the call comes among those of its proceeding: sample by sample, as they are opened."""
        return self.sample, self.number

    @property
    def first(self) -> "CallKey":
        """The call of this sample that a follow-up follows."""
        return CallKey(self.match, self.order, self.sample, forced=False)


class Proceeding(ABC):
    """All the calls of one model for one item.

    Ask `open_calls` in any order, `read` and `record` their answers: `record` tells what may be asked on top of them,
    until it has `ended`. Stored calls are recorded by their `turn`: then each is open when it comes.
    """

    def __init__(self) -> None:
        self._open: dict[CallKey, None] = {}

    def open_calls(self) -> list[CallKey]:
        """The calls that may be under way now: all that are due and not yet heard."""
        return list(self._open)

    def is_open(self, key: CallKey) -> bool:
        """Whether this call may be under way now."""
        return key in self._open

    @property
    def ended(self) -> bool:
        """True when nothing is left to ask."""
        return not self._open

    def record(self, key: CallKey, heard: Heard) -> list[CallKey]:
        """Take down one answered call; returns the calls that are open since. Raises ValueError unless it is open."""
        if key not in self._open:
            raise ValueError(f"{key} is not open here")
        del self._open[key]
        return self._opened(self._take_down(key, heard))

    @abstractmethod
    def showing(self, key: CallKey) -> Showing:
        """What this call shows the model."""

    @abstractmethod
    def seating(self, key: CallKey) -> Seating:
        """Which texts of the item this call is about."""

    @abstractmethod
    def written_before(self, key: CallKey) -> str:
        """What stands between the prompt and the label of a forced call."""

    @abstractmethod
    def read(self, key: CallKey, completion: Completion) -> Heard:
        """What this call's answer says."""

    @abstractmethod
    def _take_down(self, key: CallKey, heard: Heard) -> list[CallKey]:
        """Keep what one call said; returns the calls that are due since."""

    def _opened(self, keys: list[CallKey]) -> list[CallKey]:
        self._open |= dict.fromkeys(keys)
        return keys


class TextByText(Proceeding):
    """A proceeding that asks for each of an item's texts alone, and forces nothing: there are no labels."""

    def __init__(self, family: Family, texts: int) -> None:
        super().__init__()
        self._family = family
        self._opened([CallKey(number, Order.AB, 0, forced=False) for number in range(texts)])

    def seating(self, key: CallKey) -> Seating:
        """See Proceeding."""
        return Seating(key.match, key.order, (key.match,))

    def written_before(self, key: CallKey) -> str:
        """See Proceeding. Raises ValueError: nothing is forced."""
        raise ValueError(f"{key} cannot be forced: the protocol {self._family.name} has no labels")

    def read(self, key: CallKey, completion: Completion) -> Heard:  # noqa: ARG002 - every call is read alike
        """See Proceeding."""
        return hear_text(self._family, completion, "strict")


@dataclass(frozen=True, slots=True)
class Spent:
    """What calls took: how many were sent, and their tokens as far as the runtime counted them."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


def spent(calls: Sequence[Heard]) -> Spent:
    """What these calls took."""
    sent = [heard for heard in calls if heard.sent]
    return Spent(
        calls=len(sent),
        prompt_tokens=sum(heard.prompt_tokens or 0 for heard in sent),
        cached_tokens=sum(heard.cached_tokens or 0 for heard in sent),
        completion_tokens=sum(heard.completion_tokens or 0 for heard in sent),
    )


def length(showing: Showing) -> int:
    """How many characters of the caller's a call shows."""
    return sum(map(len, showing.slots)) + sum(len(turn.content) for turn in showing.context)
