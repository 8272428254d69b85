"""Rescue: what a silent worker held, and what outlived its deadline.

Guarantee: within a tick of a lease's lapse its chunks can be claimed again, whatever their worker was doing when it
stopped; within a tick of its deadline nothing of a job is heard any more, and it has ended but for choices and
conclusions that are due, which have minutes. Leases and deadlines are read on the database's clock alone. Any number of
ticks may run at once.
"""

from collections.abc import Sequence
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from services.foundation.database import transaction, worker_sessions
from services.foundation.identifiers import shown
from services.jobs.claim import ClaimKey
from services.jobs.deaths import InFlight, isolate, tell_of_death
from services.jobs.end import STORED, end_job_if_done, end_queued_chunks, expire_job, lock_job
from services.jobs.states import ENDED
from services.vocabulary import ChunkState, DeathCause, JobStatus

log = structlog.get_logger(__name__)

LAPSED = text(
    """
    SELECT DISTINCT chunk.job_id FROM chunk
    WHERE chunk.state = 'running'
      AND NOT EXISTS (SELECT 1 FROM worker WHERE worker.id = chunk.claimed_by AND worker.lease_until > now())
    """
)

# A session that waits for the rest of a COPY is not idle, so no time-out ends it, and it keeps its locks: nobody else
# could touch the job for as long as the process is frozen.
END_SESSIONS = text(
    """
    SELECT pg_terminate_backend(session.pid)
    FROM worker JOIN pg_stat_activity AS session ON session.application_name = :sessions || worker.id
    WHERE worker.lease_until <= now() AND session.datname = current_database() AND session.state <> 'idle'
    """
)

# A claim that was disowned is nobody's, and died of nothing. Nor did one die for sure whose lease lapsed while the
# database itself was away.
REQUEUE = text(
    """
    UPDATE chunk SET state = 'queued'
    WHERE job_id = :job_id AND state = 'running'
      AND NOT EXISTS (SELECT 1 FROM worker WHERE worker.id = chunk.claimed_by AND worker.lease_until > now())
    RETURNING job_id, stage, ordinal, part, model, fence, alone, claimed_by,
              (SELECT epoch_id FROM worker WHERE worker.id = chunk.claimed_by) AS epoch_id,
              (SELECT lease_until > pg_postmaster_start_time() FROM worker WHERE worker.id = chunk.claimed_by) AS died
    """
)

OVERDUE = text(
    f"""
    SELECT id FROM job
    WHERE status IN ('queued', 'running', 'cancelling') AND deadline <= now()
      AND (deadline <= now() - interval '5 minutes' OR EXISTS (
          SELECT 1 FROM chunk
          WHERE chunk.job_id = job.id AND chunk.state IN ('waiting', 'queued', 'running') AND NOT {STORED}
      ))
    """
)


def rescue_lapsed(engine: Engine, public_url: str) -> list[str]:
    """Hand back the chunks of lapsed leases. Returns the models concerned, one a chunk.

    A job that is locked just now, or at which the database fails, is left to the next tick and holds up no other.
    """
    with transaction(engine) as connection:
        jobs: Sequence[UUID] = connection.execute(LAPSED).scalars().all()
        if jobs:
            connection.execute(END_SESSIONS, {"sessions": worker_sessions("")})
    models: list[str] = []
    for job_id in jobs:
        try:
            with transaction(engine) as connection:
                models += _rescue_job(connection, job_id, public_url)
        except DBAPIError as error:
            log.warning("rescue_postponed", job=shown("job", job_id), error=type(error.orig).__name__)
    return models


def _rescue_job(connection: Connection, job_id: UUID, public_url: str) -> list[str]:
    job = lock_job(connection, job_id)
    if job is None:
        return []
    requeued = connection.execute(REQUEUE, {"job_id": job_id}).all()
    if job["status"] == JobStatus.CANCELLING:
        end_job_if_done(connection, end_queued_chunks(connection, job, ChunkState.CANCELLED), public_url)
        return []
    for row in requeued:
        flight = InFlight(ClaimKey(*row[:6]), row.alone)
        if row.died:
            tell_of_death(connection, flight, DeathCause.WORKER, row.claimed_by, row.epoch_id)
        isolate(connection, flight.claimed._asdict())
    return [row.model for row in requeued]


def expire_overdue(engine: Engine, public_url: str) -> int:
    """Give up what is open of jobs whose deadline has passed. Returns how many of them ended by that.

    A job that is locked just now, or at which the database fails, is left to the next tick and holds up no other.
    """
    with transaction(engine) as connection:
        jobs: Sequence[UUID] = connection.execute(OVERDUE).scalars().all()
    ended = 0
    for job_id in jobs:
        try:
            with transaction(engine) as connection:
                job = lock_job(connection, job_id)
                if job is not None and JobStatus(job["status"]) not in ENDED:
                    ended += JobStatus(expire_job(connection, job, public_url)["status"]) in ENDED
        except DBAPIError as error:
            log.warning("expiry_postponed", job=shown("job", job_id), error=type(error.orig).__name__)
    return ended
