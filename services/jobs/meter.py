"""The port to whoever counts what is heard and written.

Guarantee: counting changes nothing of what is counted; a meter is called from many threads and never raises.
"""

from enum import StrEnum
from typing import Protocol

from services.judging.heard import Heard


class Ending(StrEnum):
    """How a worker let a claimed chunk go."""

    FINISHED = "finished"
    RELEASED = "released"
    DIED = "died"
    FENCED = "fenced"


class Meter(Protocol):
    """Counts what hearing comes to."""

    def heard(self, heard: Heard) -> None:
        """A call was taken down; it may never have been sent."""
        ...

    def written(self, rows: int, seconds: float) -> None:
        """A write to the database went through."""
        ...

    def not_written(self, error: str) -> None:
        """A write failed for now and will be repeated. `error` is the name of the driver's exception."""
        ...

    def let_go(self, ending: Ending) -> None:
        """A claimed chunk is this worker's no more."""
        ...
