"""The stages of a job: which come after which, and on whose queues.

Guarantee: the chunks of a stage appear in the very transaction that ends the last chunk of the stage before, for that
ordinal, and only once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

from services.vocabulary import JobKind, Stage


@dataclass(frozen=True, slots=True)
class Step:
    """One stage and the models that each hear every chunk of it."""

    stage: Stage
    models: tuple[str, ...]


def plan(kind: JobKind, judges: Sequence[str]) -> tuple[Step, ...]:
    """The steps of a job, in order."""
    match kind:
        case JobKind.JUDGEMENT:
            return (Step(Stage.HEAR, tuple(judges)),)


OPEN_IN_STAGE = text(
    """
    SELECT EXISTS (
        SELECT 1 FROM chunk
        WHERE job_id = :job_id AND state IN ('queued', 'running') AND stage = :stage AND ordinal = :ordinal
    )
    """
)

FOLLOW = text(
    """
    INSERT INTO chunk (job_id, stage, ordinal, part, model, first_seq, end_seq, priority, state)
    SELECT job_id, :next_stage, ordinal, 0, next.model, min(first_seq), max(end_seq), min(priority), 'queued'
    FROM chunk, unnest(cast(:models AS text[])) AS next(model)
    WHERE job_id = :job_id AND stage = :stage AND ordinal = :ordinal
    GROUP BY job_id, ordinal, next.model
    """
)


def follow(connection: Connection, job_id: UUID, steps: Sequence[Step], stage: Stage, ordinal: int) -> tuple[str, ...]:
    """Open the step after `stage` for one ordinal, once nothing of `stage` is open there.

    The caller holds the job's lock and has just ended a chunk. Returns the models that now have more to hear.
    """
    index = next(index for index, step in enumerate(steps) if step.stage is stage)
    if index + 1 == len(steps):
        return ()
    place = {"job_id": job_id, "stage": stage, "ordinal": ordinal}
    if connection.scalar(OPEN_IN_STAGE, place):
        return ()
    following = steps[index + 1]
    connection.execute(FOLLOW, {**place, "next_stage": following.stage, "models": list(following.models)})
    return following.models
