"""Cancelling: queued work stops at once, running calls are aborted by their workers within seconds.

Guarantee: idempotent; a cancel is a cancel across restarts, since it rests in the job's row; what was heard stays.
"""

from uuid import UUID

from sqlalchemy import Connection, RowMapping, text

from services.foundation.errors import NotFound
from services.jobs.end import end_job_if_done, end_queued_chunks, lock_job
from services.jobs.states import ENDED, step
from services.vocabulary import ChunkState, JobStatus

OWN = text("SELECT true FROM job WHERE id = :job_id AND tenant_id = :tenant_id AND deleted_at IS NULL")

MARK = text(
    """
    UPDATE job SET status = :status, cancelling_at = now(), version = version + 1 WHERE id = :job_id RETURNING *
    """
)


def cancel(connection: Connection, tenant_id: UUID, job_id: UUID, public_url: str) -> RowMapping:
    """Cancel a job and return its row. An ended or already cancelling job is returned unchanged.

    Raises NotFound, also for another tenant's job.
    """
    own = connection.scalar(OWN, {"job_id": job_id, "tenant_id": tenant_id})
    job = lock_job(connection, job_id) if own else None
    if job is None:
        raise NotFound("there is no such job")
    status = JobStatus(job["status"])
    if status in ENDED or status is JobStatus.CANCELLING:
        return job
    marked = {"job_id": job_id, "status": step(status, JobStatus.CANCELLING)}
    job = connection.execute(MARK, marked).mappings().one()
    job = end_queued_chunks(connection, job, ChunkState.CANCELLED)
    return end_job_if_done(connection, job, public_url)
