"""The port of a judge family: how to ask a model and how to read what it answers.

Guarantee: a protocol is pure. It does no I/O and knows no runtime, database or web framework. Adding a family is
adding one folder under `protocols/`.
"""

from dataclasses import dataclass
from typing import Protocol

from services.judging.reading import Reading, VerdictForm
from services.judging.runtime import Sampling
from services.vocabulary import FinishReason


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `role` is whatever the model's chat template knows."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Showing:
    """What a judge is shown in one call: a context, and the candidates in its slots, the first slot first.

    `context` alternates user and assistant and starts and ends with user. A pairwise family has two slots, a pointwise
    one. `principle` is what the judge is asked to judge by, for families that take one.
    """

    context: tuple[Message, ...]
    slots: tuple[str, ...]
    principle: str | None = None


class JudgeProtocol(Protocol):
    """A judge family.

    `slots`: how many candidates one call shows, 2 (pairwise) or 1 (pointwise). `grades`: the least and the greatest
    score that it gives a candidate, None where it gives none; a pointwise family has them. `verdict` is None where a
    verdict cannot be forced. `takes_principle`: whether it can be told what to judge by.
    """

    name: str
    version: str
    thinks: bool
    slots: int
    grades: tuple[int, int] | None
    takes_principle: bool
    sampling: Sampling
    verdict: VerdictForm | None

    def messages(self, showing: Showing) -> list[Message]:
        """The conversation that asks about `showing`. Caller texts arrive in it untouched, whatever they contain."""
        ...

    def read(self, completion: str, finish_reason: FinishReason) -> Reading:
        """Read one completion. Total: any text gives a reading."""
        ...

    def injection_suspected(self, showing: Showing) -> bool:
        """True when a caller text holds this family's own markers, verdict tags or special tokens."""
        ...
