"""Deaths: what is made of the chunks that were being heard when a worker or its runtime died.

Guarantee: no item pays for what another one did, or for a fault of the runtime alone. A chunk that was there at
`SUSPECT` deaths is taken apart, and its items run one by one with nothing beside them; only an item that was alone in
flight at `GUILTY` deaths is condemned: it fails as poisoned, with the evidence. A claim's death counts once, whoever
tells of it.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from services.foundation.database import transaction
from services.jobs.claim import Claim, ClaimKey
from services.jobs.end import lock_job
from services.vocabulary import DeathCause

SUSPECT = 2  # deaths of a chunk among others
GUILTY = 3  # deaths of an item alone

ITS_OWN = "job_id = :job_id AND stage = :stage AND ordinal = :ordinal AND part = :part AND model = :model"

# The chunk as it was in this claim: by now it may be somebody else's, or in parts.
TELL = text(
    f"""
    INSERT INTO death (job_id, stage, ordinal, part, model, fence, alone, cause, worker_id, epoch_id)
    SELECT job_id, stage, ordinal, part, model, :fence, alone, :cause, :worker_id, :epoch_id FROM chunk
    WHERE {ITS_OWN} AND state IN ('queued', 'running') AND fence >= :fence
    ON CONFLICT DO NOTHING
    """
)
COUNT = text(f"UPDATE chunk SET deaths = deaths + 1 WHERE {ITS_OWN} RETURNING deaths, alone, state = 'queued' AS free")

# Each item becomes a part of its own, and the chunk itself that of its first one. Verdicts go with their items; what
# the chunk has spent stays where it is, as only sums of it are ever told.
PARTS = text(
    f"""
    INSERT INTO chunk (job_id, stage, ordinal, part, model, first_seq, end_seq, priority, step, calls_per_item, state,
                       settles, alone, succeeded, failed)
    SELECT job_id, stage, ordinal,
           (SELECT max(part) FROM chunk AS other
            WHERE other.job_id = chunk.job_id AND other.stage = chunk.stage AND other.ordinal = chunk.ordinal
              AND other.model = chunk.model) + item.seq - chunk.first_seq,
           model, item.seq, item.seq + 1, priority, step, calls_per_item, 'queued', settles, true,
           (SELECT count(*) FROM verdict WHERE verdict.job_id = chunk.job_id AND verdict.seq = item.seq
              AND verdict.status = 'succeeded' AND chunk.settles),
           (SELECT count(*) FROM verdict WHERE verdict.job_id = chunk.job_id AND verdict.seq = item.seq
              AND verdict.status = 'failed' AND chunk.settles)
    FROM chunk, generate_series(chunk.first_seq + 1, chunk.end_seq - 1) AS item(seq)
    WHERE {ITS_OWN}
    RETURNING succeeded, failed
    """
)
FIRST_PART = text(
    f"""
    UPDATE chunk SET end_seq = first_seq + 1, alone = true, deaths = 0,
        succeeded = succeeded - :succeeded, failed = failed - :failed
    WHERE {ITS_OWN}
    """
)

EVIDENCE = text(
    f"""
    SELECT cause, worker_id, epoch_id, to_char(told_at AT TIME ZONE 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS told_at
    FROM death WHERE {ITS_OWN} AND alone ORDER BY fence
    """
)


def tell_of_deaths(
    connection: Connection, claims: Sequence[ClaimKey], cause: DeathCause, worker_id: UUID, epoch_id: UUID | None
) -> None:
    """Count these claims, of one job, as having been in flight when their worker or its runtime died.

    The caller holds the job's lock. Claims of chunks that have ended meanwhile are let be: they were not to blame.
    """
    for claimed in claims:
        key = claimed._asdict()
        told = {**key, "cause": cause, "worker_id": worker_id, "epoch_id": epoch_id}
        if connection.execute(TELL, told).rowcount:
            chunk = connection.execute(COUNT, key).one()
            if chunk.free:
                part_if_suspect(connection, key, chunk.deaths, alone=chunk.alone)


def tell_of_runtime(engine: Engine, claims: Sequence[Claim], epoch_id: UUID) -> None:
    """Count these claims of one worker as having been in flight when its runtime died. Raises a database error."""
    for job_id, of_job in groupby(sorted(claims, key=lambda held: held.claim_key), key=lambda held: held.job_id):
        told = list(of_job)
        with transaction(engine) as connection:
            if lock_job(connection, job_id) is not None:
                keys = [held.claim_key for held in told]
                tell_of_deaths(connection, keys, DeathCause.RUNTIME, told[0].worker_id, epoch_id)


def part_if_suspect(connection: Connection, key: Mapping[str, Any], deaths: int, *, alone: bool) -> None:
    """Take a queued chunk apart that was there at too many deaths. The caller holds its lock and its job's."""
    if alone or deaths < SUSPECT:
        return
    parts = connection.execute(PARTS, key).all()
    moved = {"succeeded": sum(part.succeeded for part in parts), "failed": sum(part.failed for part in parts)}
    connection.execute(FIRST_PART, {**key, **moved})


def condemned(held: Claim) -> bool:
    """Whether this is an item that was alone at too many deaths: it is asked nothing more."""
    return held.alone and held.deaths >= GUILTY


def evidence(connection: Connection, key: Mapping[str, Any]) -> str:
    """Why an item is condemned, in words: who died of it, and when."""
    deaths = connection.execute(EVIDENCE, key).all()
    told = "; ".join(
        f"{death.cause} of worker {death.worker_id}"
        + (f" in epoch {death.epoch_id}" if death.epoch_id else "")
        + f" at {death.told_at}"
        for death in deaths
    )
    return f"heard alone, it was there at {len(deaths)} deaths: {told}"
