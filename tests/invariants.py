"""The invariants that hold whatever broke, checked against the database after a job has ended."""

from typing import Any
from uuid import UUID

from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.jobs.states import ENDED, EVENTS
from services.vocabulary import JobStatus

RECOUNT = text(
    """
    SELECT count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
           count(*) FILTER (WHERE status = 'failed') AS failed,
           count(*) AS verdicts, count(DISTINCT seq) AS items
    FROM verdict WHERE job_id = :job_id
    """
)
USAGE = text(
    """
    SELECT count(*) FILTER (WHERE sent_at IS NOT NULL) AS calls,
           coalesce(sum(prompt_tokens) FILTER (WHERE sent_at IS NOT NULL), 0) AS prompt_tokens,
           coalesce(sum(completion_tokens), 0) AS completion_tokens,
           count(*) AS traces, count(DISTINCT (seq, stage, judge, call)) AS distinct_calls
    FROM trace WHERE job_id = :job_id
    """
)


def check_ended_job(engine: Engine, job_id: UUID) -> dict[str, Any]:
    """Assert every invariant of one ended job. Returns its row."""
    with transaction(engine) as connection:

        def one(statement: Any) -> dict[str, Any]:
            return dict(connection.execute(statement, {"job_id": job_id}).mappings().one())

        job = one(text("SELECT * FROM job WHERE id = :job_id"))
        counted, used = one(RECOUNT), one(USAGE)
        events = connection.execute(
            text("SELECT type, sequence FROM event WHERE job_id = :job_id ORDER BY sequence"), {"job_id": job_id}
        ).all()
        open_chunks = one(
            text("SELECT count(*) AS n FROM chunk WHERE job_id = :job_id AND state IN ('waiting', 'queued', 'running')")
        )
        unfinished = one(text("SELECT count(*) AS n FROM chunk WHERE job_id = :job_id AND finished_version IS NULL"))
        opinions = one(text("SELECT count(*) AS n FROM opinion WHERE job_id = :job_id"))
    status = JobStatus(job["status"])
    assert status in ENDED
    assert job["ended_at"] is not None
    assert open_chunks["n"] == unfinished["n"] == 0
    assert job["total"] == job["succeeded"] + job["failed"] + job["cancelled"] + job["expired"]
    assert (job["succeeded"], job["failed"]) == (counted["succeeded"], counted["failed"])
    assert counted["verdicts"] == counted["items"] == opinions["n"]
    assert used["traces"] == used["distinct_calls"]
    assert job["calls"] == used["calls"]
    assert job["prompt_tokens"] == used["prompt_tokens"]
    assert job["completion_tokens"] == used["completion_tokens"]
    assert [tuple(event) for event in events] == [(EVENTS[status], job["sequence"])]
    return job
