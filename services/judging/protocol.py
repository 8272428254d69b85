"""The port of a judge family: how to ask a model and how to read what it answers.

Guarantee: a protocol is pure. It does no I/O and knows no runtime, database or web framework. Adding a family is
adding one folder under `protocols/`.
"""

from dataclasses import dataclass
from typing import Protocol

from services.judging.reading import Reading
from services.judging.runtime import Sampling
from services.vocabulary import FinishReason


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `role` is whatever the model's chat template knows."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two candidates as the judge is shown them: `first` stands in the first slot, whatever the item's order.

    `context` alternates user and assistant and starts and ends with user.
    """

    context: tuple[Message, ...]
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class VerdictForm:
    """How a family's verdict is forced: what is written before it, and the labels that may follow.

    `opening` is written after the judge's own text (direct mode: after the generation prompt), `labels` are the names
    for first slot and second slot in this order.
    """

    opening: str
    labels: tuple[str, str]


class JudgeProtocol(Protocol):
    """A judge family."""

    name: str
    version: str
    thinks: bool
    sampling: Sampling
    verdict: VerdictForm | None

    def messages(self, pair: Pair) -> list[Message]:
        """The conversation that asks about `pair`. Caller texts arrive in it untouched, whatever they contain."""
        ...

    def read(self, completion: str, finish_reason: FinishReason) -> Reading:
        """Read one completion. Total: any text gives a reading."""
        ...

    def injection_suspected(self, pair: Pair) -> bool:
        """True when a caller text holds this family's own markers, verdict tags or special tokens."""
        ...
