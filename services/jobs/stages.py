"""The stages of a job: which come after which, and on whose queues.

Guarantee: all chunks of a job are laid out when it is submitted, and of each ordinal exactly one settles. The chunk of
a later stage waits; it is queued in the very transaction that ends the last chunk of the stage before, for that
ordinal, and only once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

from services.foundation.fleet import CPU
from services.vocabulary import ChunkState, JobKind, Priority, Stage


@dataclass(frozen=True, slots=True)
class Step:
    """One stage and the models that each have a chunk of every ordinal in it."""

    stage: Stage
    models: tuple[str, ...]


def plan(kind: JobKind, judges: Sequence[str], *, reread: bool = False) -> tuple[Step, ...]:
    """The steps of a job, in order. The last has one model: its chunks settle the items.

    `reread`: the job reads another one's traces again, for which it needs no runtime.
    """
    if reread:
        return (Step(Stage.REREAD, (CPU,)),)
    match kind:
        case JobKind.JUDGEMENT:
            hear = Step(Stage.HEAR, tuple(judges))
            return (hear,) if len(judges) == 1 else (hear, Step(Stage.CONCLUDE, (CPU,)))


# Whether anybody has begun with the items of the open, settling chunk `chunk`: they are then running, else queued.
BEGUN = """
    (chunk.state = 'running' OR chunk.stage = 'conclude' AND EXISTS (
        SELECT 1 FROM chunk AS hearing
        WHERE hearing.job_id = chunk.job_id AND hearing.stage = 'hear' AND hearing.ordinal = chunk.ordinal
          AND hearing.state <> 'queued'
    ))
"""

LAY_OUT = text(
    """
    INSERT INTO chunk (job_id, stage, ordinal, part, model, first_seq, end_seq, priority, state, settles)
    SELECT :job_id, :stage, ordinal, 0, model, ordinal * :size, least((ordinal + 1) * :size, :total), :priority,
           :state, :settles
    FROM generate_series(0, :ordinals - 1) AS ordinal, unnest(cast(:models AS text[])) AS model
    """
)

FOLLOW = text(
    """
    UPDATE chunk SET state = 'queued'
    WHERE job_id = :job_id AND stage = :following AND ordinal = :ordinal AND state = 'waiting'
      AND NOT EXISTS (
          SELECT 1 FROM chunk AS before
          WHERE before.job_id = :job_id AND before.stage = :stage AND before.ordinal = :ordinal
            AND before.state IN ('waiting', 'queued', 'running')
      )
    """
)


def lay_out(
    connection: Connection, job_id: UUID, steps: Sequence[Step], total: int, size: int, priority: Priority
) -> int:
    """Insert the chunks of every step: `total` items in ordinals of `size`. Returns the number of ordinals."""
    ordinals = -(-total // size)
    for step in steps:
        connection.execute(
            LAY_OUT,
            {
                "job_id": job_id,
                "stage": step.stage,
                "models": list(step.models),
                "total": total,
                "size": size,
                "ordinals": ordinals,
                "priority": priority,
                "state": ChunkState.QUEUED if step is steps[0] else ChunkState.WAITING,
                "settles": step is steps[-1],
            },
        )
    return ordinals


def follow(connection: Connection, job_id: UUID, steps: Sequence[Step], stage: Stage, ordinal: int) -> None:
    """Queue the chunk that waits behind `stage` for one ordinal, once nothing of `stage` is open there.

    The caller holds the job's lock and has just ended a chunk.
    """
    index = next(index for index, step in enumerate(steps) if step.stage is stage)
    if index + 1 < len(steps):
        place = {"job_id": job_id, "stage": stage, "following": steps[index + 1].stage, "ordinal": ordinal}
        connection.execute(FOLLOW, place)
