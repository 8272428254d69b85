"""Domain errors: what the system says when it cannot do what was asked.

Guarantee: every error carries a stable `code` and says whether asking again may help (`retryable`). None knows HTTP:
`api/errors.py` holds the one table from codes to statuses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Fault:
    """One place in a request that is wrong: the line of an upload (from 1), a JSON pointer, a stable code, a
    sentence.
    """

    code: str
    pointer: str
    message: str
    line: int | None = None


class AssizesError(Exception):
    """The base of all domain errors."""

    code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(AssizesError):
    """There is no such object, or it belongs to another tenant: the two cannot be told apart from outside."""

    code = "not_found"


class Invalid(AssizesError):
    """The request holds faults. `total` may exceed `len(faults)`: only the first hundred are kept."""

    code = "invalid_request"

    def __init__(self, message: str, faults: Sequence[Fault] = (), total: int | None = None) -> None:
        super().__init__(message)
        self.faults = tuple(faults)
        self.total = len(self.faults) if total is None else total


class Malformed(Invalid):
    """A body that is not JSON, or is JSON with a key twice in one object."""

    code = "invalid_json"


class NoItems(Invalid):
    """A job without a single item."""

    code = "no_items"

    def __init__(self) -> None:
        super().__init__("the job has no items", [Fault(self.code, "/items", "a job needs at least one item")])


class Conflict(AssizesError):
    """The object's state does not allow what was asked."""

    code = "conflict"


class NothingToRetry(AssizesError):
    """None of the job's items came to what was to be tried again."""

    code = "nothing_to_retry"


class TracesPruned(AssizesError):
    """The job's traces are not kept any more: they are older than this installation keeps them."""

    code = "traces_pruned"


class Misconfigured(AssizesError):
    """Settings or the fleet file are wrong: the process must not start."""

    code = "misconfigured"


class Fenced(AssizesError):
    """This worker no longer holds the chunk that it tried to write to: another may have it by now."""

    code = "fenced"
    retryable = True
