"""Deaths: what is made of the chunks that were being heard when a worker or its runtime died.

Guarantee: no item pays for what another one did, or for a fault of the runtime alone. A chunk that was there at
`SUSPECT` deaths is suspected: it runs alone, with nothing beside it. If it dies then, too, it is taken apart, and its
items run alone one by one. Only an item that was alone in flight at `GUILTY` deaths is condemned: it is asked nothing
more and fails as poisoned, with the evidence. A claim's death counts once, whoever tells of it.

Where every worker or runtime dies it is not the items: when `MOST_IN_A_ROW` suspects of a model have died and nothing
else of it was finished since, no other is charged until something is.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from services.foundation.database import transaction
from services.foundation.identifiers import shown
from services.jobs.claim import Claim, ClaimKey
from services.jobs.end import lock_job
from services.vocabulary import DeathCause

log = structlog.get_logger(__name__)

SUSPECT = 2  # deaths of a chunk among others
GUILTY = 3  # deaths of an item alone
MOST_IN_A_ROW = 2

ITS_OWN = "job_id = :job_id AND stage = :stage AND ordinal = :ordinal AND part = :part AND model = :model"

# By now the chunk may be somebody else's, or run alone.
TELL = text(
    f"""
    INSERT INTO death (job_id, stage, ordinal, part, model, fence, alone, cause, worker_id, epoch_id)
    SELECT job_id, stage, ordinal, part, model, :fence, :alone, :cause, :worker_id, :epoch_id FROM chunk
    WHERE {ITS_OWN} AND state IN ('queued', 'running') AND fence >= :fence
    ON CONFLICT DO NOTHING
    """
)
COUNT = text(f"UPDATE chunk SET deaths = deaths + 1 WHERE {ITS_OWN} AND alone = :alone")

EXCUSED = text(
    f"""
    SELECT count(DISTINCT (job_id, stage, ordinal, part)) >= {MOST_IN_A_ROW} FROM death
    WHERE model = :model AND alone
      AND (job_id, stage, ordinal, part) <> (:job_id, :stage, :ordinal, :part)
      AND NOT EXISTS (
          SELECT 1 FROM chunk
          WHERE chunk.model = :model AND chunk.state = 'finished' AND chunk.finished_at > death.told_at
            AND NOT (chunk.alone AND chunk.deaths >= {GUILTY})
      )
    """
)

QUEUED = text(
    f"SELECT alone, deaths, end_seq - first_seq AS items FROM chunk WHERE {ITS_OWN} AND state = 'queued' FOR UPDATE"
)
SET_APART = text(f"UPDATE chunk SET alone = true, deaths = 0 WHERE {ITS_OWN}")

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
    UPDATE chunk SET end_seq = first_seq + 1, deaths = 0,
        succeeded = succeeded - :succeeded, failed = failed - :failed
    WHERE {ITS_OWN}
    """
)

EVIDENCE = text(
    f"""
    SELECT cause, worker_id, epoch_id, to_char(told_at AT TIME ZONE 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS told_at
    FROM death WHERE {ITS_OWN} AND alone ORDER BY fence DESC LIMIT {GUILTY}
    """
)


class InFlight(NamedTuple):
    """A claim that was in flight at a death, and whether it ran alone then."""

    claimed: ClaimKey
    alone: bool


def tell_of_death(
    connection: Connection, flight: InFlight, cause: DeathCause, worker_id: UUID, epoch_id: UUID | None
) -> bool:
    """Count a claim as having been in flight when its worker or its runtime died. Returns whether it was charged.

    The caller holds the job's lock. A chunk that has ended meanwhile is let be: it was not to blame.
    """
    key = {**flight.claimed._asdict(), "alone": flight.alone}
    if flight.alone and cause is not DeathCause.ERROR and connection.scalar(EXCUSED, key):
        return False
    told = connection.execute(TELL, {**key, "cause": cause, "worker_id": worker_id, "epoch_id": epoch_id}).rowcount
    if told:
        connection.execute(COUNT, key)
    return bool(told)


def tell_of_runtime(engine: Engine, flights: Sequence[tuple[Claim, UUID]]) -> bool:
    """Count the claims of one worker as having been in flight when its runtime died, each in the epoch that is named
    beside it. Returns whether any was charged.

    What the database does not take is logged and not told: who is to blame will be there the next time, too.
    """
    charged = False
    in_order = sorted(flights, key=lambda told: told[0].claim_key)
    for job_id, of_job in groupby(in_order, key=lambda told: told[0].job_id):
        try:
            with transaction(engine) as connection:
                if lock_job(connection, job_id) is None:
                    continue
                for held, epoch_id in of_job:
                    flight = InFlight(held.claim_key, held.alone)
                    charged |= tell_of_death(connection, flight, DeathCause.RUNTIME, held.worker_id, epoch_id)
                    isolate(connection, held.key)
        except DBAPIError as error:
            log.warning("death_not_told", job=shown("job", job_id), error=type(error.orig).__name__)
    return charged


def isolate(connection: Connection, key: Mapping[str, Any]) -> None:
    """Do with a queued chunk what its deaths call for. The caller holds its job's lock."""
    chunk = connection.execute(QUEUED, key).first()
    if chunk is None:
        return
    if not chunk.alone and chunk.deaths >= SUSPECT:
        connection.execute(SET_APART, key)
    elif chunk.alone and chunk.deaths and chunk.items > 1:
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
        for death in reversed(deaths)
    )
    return f"heard alone, it was there at {len(deaths)} deaths: {told}"
