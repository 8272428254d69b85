"""Settling chunks that need no runtime: whoever has a CPU works them off, one by one.

Guarantee: the rows of a chunk and its end are written in one transaction, which finds the chunk queued or writes
nothing. So there is no claim and no lease: who dies half-way has written nothing, and of two at one chunk one writes.
A chunk that cannot be settled is left alone for a minute, while others go on; where that is due to some of its items,
these fail and hold up no other.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection, Engine, RowMapping, text
from sqlalchemy.exc import DBAPIError

from services.foundation.database import transaction
from services.foundation.fleet import CPU
from services.jobs.choice import Choice, failure
from services.jobs.claim import START
from services.jobs.end import end_chunk, lock_job
from services.jobs.record import Batch, spent_on, write_batch
from services.jobs.rows import assessment_row, settled_row
from services.vocabulary import ChunkState, ItemError, Stage

log = structlog.get_logger(__name__)

# `claimed_at` is set when a chunk could not be settled.
NEXT = text(
    f"""
    SELECT chunk.job_id, chunk.stage, chunk.ordinal, chunk.part, chunk.model, chunk.first_seq, chunk.end_seq,
           chunk.step, chunk.settles, job.kind, job.judges, job.settings
    FROM chunk JOIN job ON job.id = chunk.job_id
    WHERE chunk.model = '{CPU}' AND chunk.state = 'queued' AND chunk.stage = :stage
      AND (chunk.claimed_at IS NULL OR chunk.claimed_at < now() - interval '1 minute')
    ORDER BY chunk.priority, chunk.job_id, chunk.ordinal, chunk.part
    LIMIT 1
    """
)

THIS_ONE = """
    job_id = :job_id AND stage = :stage AND ordinal = :ordinal AND part = :part AND model = :model AND state = 'queued'
"""
LOCK_CHUNK = text(f"SELECT true FROM chunk WHERE {THIS_ONE} FOR UPDATE")
PUT_OFF = text(f"UPDATE chunk SET claimed_at = now() WHERE {THIS_ONE}")

Made = TypeVar("Made", bound=Batch)
Work = Callable[[Connection, Mapping[str, Any]], Made]
Write = Callable[[Connection, Mapping[str, Any], Made], None]


def settle_next(
    engine: Engine, stage: Stage, work: Work[Made], public_url: str, write: Write[Made] = write_batch
) -> bool:
    """Settle the next chunk of `stage` with what `work`, which only reads, makes of it. False when there is none.

    `write` writes that, with locks held. Where the chunk settles, an item without a verdict in it has expired. Raises a
    database error when not even the attempt can be noted.
    """
    with transaction(engine) as connection:
        chunk = connection.execute(NEXT, {"stage": stage}).mappings().first()
    if chunk is None:
        return False
    key = {name: chunk[name] for name in ("job_id", "stage", "ordinal", "part", "model", "step")}
    try:
        with transaction(engine) as connection:
            made, broken = _worked_out(connection, dict(chunk), work)
        verdicts = len(broken.verdicts) + sum(len(batch.verdicts) for batch in made)
        whole = not chunk["settles"] or verdicts == chunk["end_seq"] - chunk["first_seq"]
        with transaction(engine) as connection:
            if (job := _locked(connection, key)) is not None:
                for batch in made:
                    write(connection, key, batch)
                write_batch(connection, key, broken)
                end_chunk(connection, job, key, ChunkState.FINISHED if whole else ChunkState.EXPIRED, public_url)
    except Exception:
        log.exception("chunk_not_settled", **{name: str(value) for name, value in key.items()})
        with transaction(engine) as connection:
            connection.execute(PUT_OFF, key)
    return True


def _worked_out(connection: Connection, chunk: Mapping[str, Any], work: Work[Made]) -> tuple[list[Made], Batch]:
    """What `work` makes of a chunk. Where that breaks down, of each item alone, and of those that it breaks down at,
    that they failed. Where it breaks down at all of them the fault is ours: that is raised."""
    broken = Batch()
    try:
        return [work(connection, chunk)], broken
    except DBAPIError:
        raise
    except Exception:
        made: list[Made] = []
        for seq in range(chunk["first_seq"], chunk["end_seq"]):
            try:
                made.append(work(connection, {**chunk, "first_seq": seq, "end_seq": seq + 1}))
            except DBAPIError:
                raise
            except Exception:
                log.exception("item_not_settled", job_id=str(chunk["job_id"]), stage=chunk["stage"], seq=seq)
                _fail(connection, broken, chunk, seq)
        if not made:
            raise
        return made, broken


def _fail(connection: Connection, broken: Batch, chunk: Mapping[str, Any], seq: int) -> None:
    """Note that an item failed; one that is only chosen for here is concluded later."""
    error = failure(ItemError.RUNTIME_ERROR, "what was heard of the item could not be put together")
    if chunk["settles"]:
        spent = spent_on(connection, chunk["job_id"], seq)
        broken.verdicts.append(settled_row(chunk["job_id"], seq, spent, error=error))
    else:
        broken.assessments.append(
            assessment_row(chunk["job_id"], seq, None, Choice(None, None, [], error=error).body())
        )


def _locked(connection: Connection, key: Mapping[str, Any]) -> RowMapping | None:
    """The job's row, it and the chunk locked. None: settled by somebody else, cancelled or expired meanwhile."""
    connection.execute(START, {"job_id": key["job_id"]})
    job = lock_job(connection, key["job_id"])
    return job if job is not None and connection.scalar(LOCK_CHUNK, key) else None
