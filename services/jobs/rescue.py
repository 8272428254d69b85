"""Rescue: what a silent worker held, and what outlived its deadline.

Guarantee: within a tick of a lease's lapse its chunks can be claimed again; within a tick of its deadline nothing of a
job is heard any more, and it has ended but for conclusions that are due, which have minutes. Leases and deadlines are
read on the database's clock alone. Any number of ticks may run at once.
"""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from services.foundation.database import transaction
from services.jobs.conclude import end_job_if_done, end_queued_chunks, expire_job, lock_job
from services.jobs.states import ENDED
from services.vocabulary import ChunkState, JobStatus

LAPSED = text(
    """
    SELECT DISTINCT chunk.job_id FROM chunk
    WHERE chunk.state = 'running'
      AND NOT EXISTS (SELECT 1 FROM worker WHERE worker.id = chunk.claimed_by AND worker.lease_until > now())
    """
)

REQUEUE = text(
    """
    UPDATE chunk SET state = 'queued', deaths = deaths + 1
    WHERE job_id = :job_id AND state = 'running'
      AND NOT EXISTS (SELECT 1 FROM worker WHERE worker.id = chunk.claimed_by AND worker.lease_until > now())
    RETURNING model
    """
)

OVERDUE = text(
    """
    SELECT id FROM job
    WHERE status IN ('queued', 'running', 'cancelling') AND deadline <= now()
      AND (deadline <= now() - interval '5 minutes' OR EXISTS (
          SELECT 1 FROM chunk
          WHERE chunk.job_id = job.id AND chunk.state IN ('waiting', 'queued', 'running') AND chunk.stage <> 'conclude'
      ))
    """
)


def rescue_lapsed(engine: Engine, public_url: str) -> list[str]:
    """Hand back the chunks of lapsed leases. Returns the models concerned, one a chunk."""
    with transaction(engine) as connection:
        jobs: Sequence[UUID] = connection.execute(LAPSED).scalars().all()
    models: list[str] = []
    for job_id in jobs:
        with transaction(engine) as connection:
            models += _rescue_job(connection, job_id, public_url)
    return models


def _rescue_job(connection: Connection, job_id: UUID, public_url: str) -> list[str]:
    job = lock_job(connection, job_id)
    if job is None:
        return []
    models: list[str] = list(connection.execute(REQUEUE, {"job_id": job_id}).scalars())
    if job["status"] == JobStatus.CANCELLING:
        end_job_if_done(connection, end_queued_chunks(connection, job, ChunkState.CANCELLED), public_url)
        return []
    return models


def expire_overdue(engine: Engine, public_url: str) -> int:
    """Give up what is open of jobs whose deadline has passed. Returns how many of them ended by that."""
    with transaction(engine) as connection:
        jobs: Sequence[UUID] = connection.execute(OVERDUE).scalars().all()
    ended = 0
    for job_id in jobs:
        with transaction(engine) as connection:
            job = lock_job(connection, job_id)
            if job is None or JobStatus(job["status"]) in ENDED:
                continue
            ended += JobStatus(expire_job(connection, job, public_url)["status"]) in ENDED
    return ended
