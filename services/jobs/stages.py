"""The stages of a job: which come after which, and on whose queues.

Guarantee: all chunks of a job are laid out when it is submitted, and of each ordinal exactly one settles. The chunk of
a later stage waits; it is queued in the very transaction that ends the last chunk of the stage before, for that
ordinal, and only once. A job that is laid out stands in line at every model that it needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

from services.contract.options import JobSettings, ReappraisalSettings, ScoringSettings, Settings
from services.foundation.fleet import CPU
from services.jobs.turns import line_up
from services.vocabulary import ChunkState, Priority, Stage


@dataclass(frozen=True, slots=True)
class Step:
    """One stage and the models that each have a chunk of every ordinal in it."""

    stage: Stage
    models: tuple[str, ...]


CONCLUDE = Step(Stage.CONCLUDE, (CPU,))


def plan(settings: Settings) -> tuple[Step, ...]:
    """The steps of a job, in order. The last has one model: its chunks settle the items."""
    match settings:
        case JobSettings(judges=judges):
            hear = Step(Stage.HEAR, tuple(judges))
            return (hear,) if len(judges) == 1 else (hear, CONCLUDE)
        case ScoringSettings(committee=committee):
            return (Step(Stage.SCORE, committee.models), CONCLUDE)
        case ReappraisalSettings(committee=committee, compare=judge):
            score = () if committee is None else (Step(Stage.SCORE, committee.models),)
            compare = () if judge is None else (Step(Stage.COMPARE, (judge,)), CONCLUDE)
            return (Step(Stage.REAPPRAISE, (settings.model,)), *score, Step(Stage.CHOOSE, (CPU,)), *compare)


Calls = Mapping[Stage, Mapping[str, int]]  # of an item, by the stage and the model that is called

# Whether anybody has begun with the items of the open, settling chunk `chunk`: they are then running, else queued.
BEGUN = """
    (chunk.state = 'running' OR chunk.step > 0 AND EXISTS (
        SELECT 1 FROM chunk AS first
        WHERE first.job_id = chunk.job_id AND first.ordinal = chunk.ordinal AND first.step = 0
          AND first.state <> 'queued'
    ))
"""

LAY_OUT = text(
    """
    INSERT INTO chunk (job_id, stage, ordinal, part, model, first_seq, end_seq, priority, step, calls_per_item, state,
                       settles)
    SELECT :job_id, :stage, ordinal, 0, model, ordinal * :size, least((ordinal + 1) * :size, :total), :priority,
           :step, calls, :state, :settles
    FROM generate_series(0, :ordinals - 1) AS ordinal,
         unnest(cast(:models AS text[]), cast(:calls AS smallint[])) AS called(model, calls)
    """
)

FOLLOW = text(
    """
    UPDATE chunk SET state = 'queued'
    WHERE job_id = :job_id AND ordinal = :ordinal AND state = 'waiting' AND NOT EXISTS (
        SELECT 1 FROM chunk AS before
        WHERE before.job_id = :job_id AND before.ordinal = :ordinal AND before.step < chunk.step
          AND before.state IN ('waiting', 'queued', 'running')
    )
    """
)


def lay_out(
    connection: Connection, job_id: UUID, steps: Sequence[Step], calls: Calls, total: int, size: int, priority: Priority
) -> int:
    """Insert the chunks of every step of a stored job: `total` items in ordinals of `size`.

    Returns the number of ordinals.
    """
    ordinals = -(-total // size)
    for number, step in enumerate(steps):
        connection.execute(
            LAY_OUT,
            {
                "job_id": job_id,
                "stage": step.stage,
                "models": list(step.models),
                "calls": [0 if model == CPU else calls[step.stage][model] for model in step.models],
                "total": total,
                "size": size,
                "ordinals": ordinals,
                "priority": priority,
                "step": number,
                "state": ChunkState.QUEUED if number == 0 else ChunkState.WAITING,
                "settles": step is steps[-1],
            },
        )
    line_up(connection, job_id)
    return ordinals


def follow(connection: Connection, job_id: UUID, ordinal: int) -> None:
    """Queue the chunks of one ordinal that wait for nothing any more: all before them have ended.

    The caller holds the job's lock and has just ended a chunk.
    """
    connection.execute(FOLLOW, {"job_id": job_id, "ordinal": ordinal})
