"""Ending chunks, and ending a job with its last chunk: all in the caller's one transaction.

Guarantee: counts move by exactly what the ended chunks hold, so that an ended job's sum to its total: an item counts
with the chunk that settles it. A job ends once, in the transaction that ends its last open chunk, and its event is
written there too. Lock order everywhere: job first, then chunks, then its turns and shares.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, text

from services.contract.webhooks import job_event_payload
from services.foundation.identifiers import new_id
from services.jobs.stages import follow
from services.jobs.states import EVENTS, final_status, step
from services.jobs.turns import step_down
from services.vocabulary import ChunkState, JobStatus

LOCK_JOB = text(
    """
    SELECT *, deadline <= now() AS overdue, deadline <= now() - interval '5 minutes' AS long_overdue
    FROM job WHERE id = :job_id FOR UPDATE
    """
)

END_CHUNKS = """
    WITH ended AS (
        UPDATE chunk SET state = :state, finished_at = now(), finished_version = :version
        WHERE job_id = :job_id AND {which}
        RETURNING succeeded, failed, calls, prompt_tokens, cached_tokens, completion_tokens,
                  CASE WHEN settles THEN end_seq - first_seq - succeeded - failed ELSE 0 END AS given_up
    ), moved AS (
        SELECT coalesce(sum(succeeded), 0) AS succeeded, coalesce(sum(failed), 0) AS failed,
               coalesce(sum(given_up), 0) AS given_up,
               coalesce(sum(calls), 0) AS calls, coalesce(sum(prompt_tokens), 0) AS prompt_tokens,
               coalesce(sum(cached_tokens), 0) AS cached_tokens,
               coalesce(sum(completion_tokens), 0) AS completion_tokens
        FROM ended
    )
    UPDATE job SET
        version = :version, succeeded = job.succeeded + moved.succeeded, failed = job.failed + moved.failed,
        cancelled = job.cancelled + CASE WHEN :state = 'cancelled' THEN moved.given_up ELSE 0 END,
        expired = job.expired + CASE WHEN :state = 'expired' THEN moved.given_up ELSE 0 END,
        calls = job.calls + moved.calls, prompt_tokens = job.prompt_tokens + moved.prompt_tokens,
        cached_tokens = job.cached_tokens + moved.cached_tokens,
        completion_tokens = job.completion_tokens + moved.completion_tokens
    FROM moved WHERE job.id = :job_id
    RETURNING job.*
"""

END_ONE = text(END_CHUNKS.format(which="stage = :stage AND ordinal = :ordinal AND part = :part AND model = :model"))
END_QUEUED = text(END_CHUNKS.format(which="state IN ('waiting', 'queued')"))
# What is worked out from stored rows needs no runtime, and so is still worked out when the deadline has passed.
STORED = "stage IN ('choose', 'conclude')"
END_UNHEARD = text(END_CHUNKS.format(which=f"state IN ('waiting', 'queued', 'running') AND NOT {STORED}"))
END_WITHOUT_ROWS = text(
    END_CHUNKS.format(
        which="""state = 'waiting' AND NOT EXISTS (
            SELECT 1 FROM chunk AS before
            WHERE before.job_id = chunk.job_id AND before.ordinal = chunk.ordinal AND before.step < chunk.step
              AND before.state = 'queued'
        )"""
    )
)
END_OPEN = text(END_CHUNKS.format(which="state IN ('waiting', 'queued', 'running')"))

# What some judges of a panel have said, what was written, and what some members of a committee have scored. What is
# chosen is concluded behind the choice.
_OF_CHUNK = "WHERE job_id = chunk.job_id AND seq >= chunk.first_seq AND seq < chunk.end_seq"
QUEUE_WITH_ROWS = text(
    f"""
    UPDATE chunk SET state = 'queued'
    WHERE job_id = :job_id AND state = 'waiting' AND CASE stage
        WHEN 'choose' THEN EXISTS (SELECT 1 FROM reappraisal {_OF_CHUNK})
        ELSE EXISTS (SELECT 1 FROM opinion {_OF_CHUNK}) OR EXISTS (SELECT 1 FROM assessment {_OF_CHUNK})
          OR EXISTS (SELECT 1 FROM score {_OF_CHUNK})
    END AND NOT EXISTS (
        SELECT 1 FROM chunk AS before
        WHERE before.job_id = chunk.job_id AND before.ordinal = chunk.ordinal AND before.step < chunk.step
          AND before.state IN ('waiting', 'queued')
    )
    """
)

ANY_OPEN = text(
    "SELECT EXISTS (SELECT 1 FROM chunk WHERE job_id = :job_id AND state IN ('waiting', 'queued', 'running'))"
)

END_JOB = text(
    "UPDATE job SET status = :status, ended_at = now(), sequence = sequence + 1 WHERE id = :job_id RETURNING *"
)

ADD_EVENT = text(
    """
    INSERT INTO event (id, tenant_id, job_id, type, sequence, payload)
    VALUES (:id, :tenant_id, :job_id, :type, :sequence, :payload)
    """
)


def lock_job(connection: Connection, job_id: UUID) -> RowMapping | None:
    """The job's row, locked until the transaction ends, and whether it is `overdue`, or `long_overdue`: by so much that
    nothing of it is waited for any more. None when it is gone.
    """
    return connection.execute(LOCK_JOB, {"job_id": job_id}).mappings().first()


def end_chunk(
    connection: Connection, job: RowMapping, key: Mapping[str, Any], state: ChunkState, public_url: str
) -> RowMapping:
    """End the one chunk that `key` names; then queue what waits for it, or end the job when nothing else is open.

    The caller holds the locks of job and chunk. Returns the job's row as it is now.
    """
    bound = {**key, "job_id": job["id"], "state": state, "version": job["version"] + 1}
    job = connection.execute(END_ONE, bound).mappings().one()
    if state is ChunkState.FINISHED and job["status"] != JobStatus.CANCELLING:
        follow(connection, job["id"], key["ordinal"])
    return end_job_if_done(connection, job, public_url)


def end_queued_chunks(connection: Connection, job: RowMapping, state: ChunkState) -> RowMapping:
    """End all queued and waiting chunks of a locked job, leaving the running ones to their workers."""
    return _end_many(connection, job, state, END_QUEUED)


def _end_many(connection: Connection, job: RowMapping, state: ChunkState, statement: Any) -> RowMapping:
    bound = {"job_id": job["id"], "state": state, "version": job["version"] + 1}
    return connection.execute(statement, bound).mappings().one()


def end_job_if_done(connection: Connection, job: RowMapping, public_url: str) -> RowMapping:
    """End a locked, open job that has no open chunk left. Returns the job's row as it is now."""
    if connection.scalar(ANY_OPEN, {"job_id": job["id"]}):
        return job
    cancelled = job["status"] == JobStatus.CANCELLING
    onward = JobStatus.CANCELLED if cancelled else final_status(job["succeeded"], job["failed"], job["expired"])
    status = step(JobStatus(job["status"]), onward)
    job = connection.execute(END_JOB, {"job_id": job["id"], "status": status}).mappings().one()
    step_down(connection, job["id"])
    connection.execute(
        ADD_EVENT,
        {
            "id": new_id(),
            "tenant_id": job["tenant_id"],
            "job_id": job["id"],
            "type": EVENTS[status],
            "sequence": job["sequence"],
            "payload": job_event_payload(EVENTS[status], job, public_url),
        },
    )
    return job


def expire_job(connection: Connection, job: RowMapping, public_url: str) -> RowMapping:
    """Give up what is open of a locked job whose deadline has passed; whoever runs a chunk of it is fenced.

    What has been said, written or scored by now is still chosen and concluded before the job ends, unless it is long
    overdue. A cancelling job ends cancelled. Returns the job's row as it is now.
    """
    if job["status"] == JobStatus.CANCELLING:
        job = _end_many(connection, job, ChunkState.CANCELLED, END_OPEN)
    elif job["long_overdue"]:
        job = _end_many(connection, job, ChunkState.EXPIRED, END_OPEN)
    else:
        job = _end_many(connection, job, ChunkState.EXPIRED, END_UNHEARD)
        connection.execute(QUEUE_WITH_ROWS, {"job_id": job["id"]})
        job = _end_many(connection, job, ChunkState.EXPIRED, END_WITHOUT_ROWS)
    return end_job_if_done(connection, job, public_url)
