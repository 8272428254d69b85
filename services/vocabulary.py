"""The closed vocabularies that every layer shares. Nothing here depends on anything else of Assizes.

A value of these enums is what stands in the database, in JSON and in the documentation: renaming one is a change
of the public contract.
"""

from enum import IntEnum, StrEnum


class JobKind(StrEnum):
    """What a job asks for."""

    JUDGEMENT = "judgement"
    REAPPRAISAL = "reappraisal"
    SCORING = "scoring"


class Task(StrEnum):
    """What a model of the fleet does: compare or grade candidates, write one, or score one with a bare number."""

    JUDGE = "judge"
    WRITE = "write"
    SCORE = "score"


class JobStatus(StrEnum):
    """Where a job stands. `services/jobs/states.py` holds the only transitions."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class ChunkState(StrEnum):
    """Where a chunk stands. Only a `queued` chunk can be claimed; a `waiting` one is queued after the stage before."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class DeathCause(StrEnum):
    """What died while a chunk was in flight: its worker, the runtime, or only the work at it, by an error of ours."""

    WORKER = "worker"
    RUNTIME = "runtime"
    ERROR = "error"


class Stage(StrEnum):
    """A step of a job. A chunk of one stage waits until those of the stage before have finished."""

    HEAR = "hear"
    REAPPRAISE = "reappraise"
    SCORE = "score"
    CHOOSE = "choose"
    COMPARE = "compare"
    CONCLUDE = "conclude"
    REREAD = "reread"


class ItemStatus(StrEnum):
    """What became of one item of a job."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Priority(IntEnum):
    """Lower is heard first. On the wire it is the lower-case name."""

    INTERACTIVE = 0
    STANDARD = 1
    BULK = 2


class Order(StrEnum):
    """The order in which a judge is shown the two candidates."""

    AB = "ab"
    BA = "ba"

    @property
    def swapped(self) -> bool:
        """True when the second candidate is shown first."""
        return self is Order.BA


class Orders(StrEnum):
    """Which orders a hearing uses."""

    BOTH = "both"
    GIVEN = "given"
    RANDOM = "random"


class Mode(StrEnum):
    """`reason`: the judge writes its analysis first. `direct`: one verdict token, read by its logprob."""

    REASON = "reason"
    DIRECT = "direct"


class Decide(StrEnum):
    """How a hearing becomes an opinion."""

    SOFT = "soft"
    VOTE = "vote"
    SCORES = "scores"


class OnConflict(StrEnum):
    """What `vote` makes of orders that disagree."""

    TIE = "tie"
    ABSTAIN = "abstain"
    SOFT = "soft"


class Winner(StrEnum):
    """A side of a comparison, or neither. In a reading: `A` is the first slot. In an opinion: the item's first
    candidate.
    """

    A = "A"
    B = "B"
    TIE = "tie"

    @property
    def mirrored(self) -> "Winner":
        """The same answer with the two sides exchanged."""
        return {Winner.A: Winner.B, Winner.B: Winner.A, Winner.TIE: Winner.TIE}[self]


class FinishReason(StrEnum):
    """Why a runtime stopped writing."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class Outcome(StrEnum):
    """What one call came to. None of them is ever turned into a number."""

    DECIDED = "decided"
    TIE = "tie"
    ACCEPTED = "accepted"
    EMPTY = "empty"
    TOO_LONG = "too_long"
    UNPARSEABLE = "unparseable"
    TRUNCATED = "truncated"
    CONTEXT_OVERFLOW = "context_overflow"
    ABORTED = "aborted"
    FAILED = "failed"
    POISONED = "poisoned"


class Flag(StrEnum):
    """What a reader of an outcome should know beside it."""

    CONFLICTING = "conflicting"
    CONTRADICTORY = "contradictory"
    THINK_UNCLOSED = "think_unclosed"
    FORCED = "forced"
    INJECTION_SUSPECTED = "injection_suspected"


class ItemError(StrEnum):
    """Why an item failed."""

    UNPARSEABLE = "unparseable"
    TRUNCATED = "truncated"
    CONTEXT_OVERFLOW = "context_overflow"
    RUNTIME_ERROR = "runtime_error"
    GATED = "gated"
    POISONED = "poisoned"


class EventType(StrEnum):
    """What a webhook tells."""

    JOB_COMPLETED = "job.completed"
    JOB_FAILED = "job.failed"
    JOB_CANCELLED = "job.cancelled"
    JOB_EXPIRED = "job.expired"


class DeliveryState(StrEnum):
    """Where a webhook delivery stands."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class WorkerState(StrEnum):
    """Where a worker and its runtime stand."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    UNHEALTHY = "unhealthy"
    RESTARTING = "restarting"
    STOPPED = "stopped"
    DEFUNCT = "defunct"
