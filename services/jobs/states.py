"""The only transition table of a job, and the only place where its status is decided.

Guarantee: a status changes along an arrow of `TRANSITIONS` or not at all; an ended job never changes its status.
`docs/job-states.md` shows the same table and a test holds the two together.
"""

from collections.abc import Mapping

from services.vocabulary import EventType, JobStatus

TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = {
    JobStatus.QUEUED: frozenset({JobStatus.RUNNING, JobStatus.CANCELLING, JobStatus.CANCELLED, JobStatus.EXPIRED}),
    JobStatus.RUNNING: frozenset(
        {
            JobStatus.COMPLETED,
            JobStatus.COMPLETED_WITH_ERRORS,
            JobStatus.FAILED,
            JobStatus.CANCELLING,
            JobStatus.CANCELLED,
            JobStatus.EXPIRED,
        }
    ),
    JobStatus.CANCELLING: frozenset({JobStatus.CANCELLED}),
    JobStatus.COMPLETED: frozenset(),
    JobStatus.COMPLETED_WITH_ERRORS: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELLED: frozenset(),
    JobStatus.EXPIRED: frozenset(),
}

OPEN = tuple(status for status, onward in TRANSITIONS.items() if onward)
ENDED = tuple(status for status, onward in TRANSITIONS.items() if not onward)

EVENTS: Mapping[JobStatus, EventType] = {
    JobStatus.COMPLETED: EventType.JOB_COMPLETED,
    JobStatus.COMPLETED_WITH_ERRORS: EventType.JOB_COMPLETED,
    JobStatus.FAILED: EventType.JOB_FAILED,
    JobStatus.CANCELLED: EventType.JOB_CANCELLED,
    JobStatus.EXPIRED: EventType.JOB_EXPIRED,
}


def step(current: JobStatus, onward: JobStatus) -> JobStatus:
    """`onward`, when the table has that arrow; anything else is a fault of ours and raises ValueError."""
    if onward not in TRANSITIONS[current]:
        raise ValueError(f"a job never goes from {current} to {onward}")
    return onward


def final_status(succeeded: int, failed: int, expired: int) -> JobStatus:
    """The status of a job that was not cancelled, by what became of its items."""
    if expired:
        return JobStatus.EXPIRED
    if failed == 0:
        return JobStatus.COMPLETED
    return JobStatus.COMPLETED_WITH_ERRORS if succeeded else JobStatus.FAILED
