"""The port of a model family: how to ask a model and how to read what it answers.

Guarantee: a protocol is pure. It does no I/O and knows no runtime, database or web framework. Adding a family is
adding one folder under `protocols/`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from services.judging.reading import Reading, VerdictForm
from services.judging.runtime import Sampling
from services.vocabulary import FinishReason, Task


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `role` is whatever the model's chat template knows."""

    role: str
    content: str


def messages(turns: Iterable[Mapping[str, str]]) -> tuple[Message, ...]:
    """The turns of a conversation as callers write it: objects with `role` and `content`."""
    return tuple(Message(turn["role"], turn["content"]) for turn in turns)


@dataclass(frozen=True, slots=True)
class Showing:
    """What a model is shown in one call: a context, and the candidates in its slots, the first slot first.

    `context` alternates user and assistant and starts and ends with user. A pairwise family has two slots, a pointwise
    one, and a family that writes none. `principle` is what the judge is asked to judge by, for families that take one.
    """

    context: tuple[Message, ...]
    slots: tuple[str, ...]
    principle: str | None = None


class Family(Protocol):
    """A family of models. Plain class attributes will do for its properties."""

    @property
    def name(self) -> str:
        """What the fleet file calls it."""
        ...

    @property
    def version(self) -> str:
        """Grows when the same completion may be read otherwise, or asked for otherwise; traces keep it."""
        ...

    @property
    def task(self) -> Task:
        """What it does: judge candidates, write a text about a context, or score one candidate with a bare number."""
        ...

    @property
    def thinks(self) -> bool:
        """Whether its prompts open `<think>`, so that a completion holds the closing tag alone."""
        ...

    @property
    def slots(self) -> int:
        """How many candidates one call shows: 2, it compares them; 1, it grades or scores it; 0, it writes one."""
        ...

    @property
    def grades(self) -> tuple[int, int] | None:
        """The least and the greatest score of a candidate; None where it gives none. A pointwise judge has them."""
        ...

    @property
    def takes_principle(self) -> bool:
        """Whether it can be told what to judge by."""
        ...

    @property
    def sampling(self) -> Sampling:
        """Its own sampling, where neither fleet nor job says otherwise. What only scores draws nothing."""
        ...

    @property
    def verdict(self) -> VerdictForm | None:
        """How its verdict is written, where one can be forced; else None."""
        ...

    def messages(self, showing: Showing) -> list[Message]:
        """The conversation that asks about `showing`. Caller texts arrive in it untouched, whatever they contain.

        It ends where the model goes on; for a model that scores, with the candidate as the assistant's turn.
        """
        ...

    def read(self, completion: str, finish_reason: FinishReason) -> Reading:
        """Read one completion: a text, or the JSON of a score. Total: any text gives a reading."""
        ...

    def injection_suspected(self, showing: Showing) -> bool:
        """True when a caller text holds this family's own markers, verdict tags or special tokens."""
        ...
