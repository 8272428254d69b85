"""What becomes of a call that was sent: the port between a chunk's thread and whoever carries its calls."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from queue import SimpleQueue
from typing import Protocol

from services.judging.runtime import Call, Completion
from services.vocabulary import Priority


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, or what went wrong: an exception other than the port's own is a fault of ours.

    `waited_s`: seconds from sending to answer.
    """

    rid: str
    came: Completion | Exception
    sent_at: datetime
    waited_s: float


class Carrier(Protocol):
    """Carries calls to the runtime and answers back."""

    def send(self, chunk: Hashable, priority: Priority, calls: Sequence[Call], answers: SimpleQueue[Answer]) -> None:
        """Queue calls behind the chunk's earlier ones. Each gives one answer, in any order."""
        ...

    def hang_up(self, chunk: Hashable) -> None:
        """Abort all of the chunk's calls and wait until that is done. They give no answer any more."""
        ...
