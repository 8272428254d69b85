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
OPINIONS = text(
    """
    SELECT count(*) AS given, count(DISTINCT (seq, judge)) AS distinct_ones, count(DISTINCT seq) AS items,
           count(*) FILTER (WHERE judge <> ALL (SELECT unnest(judges) FROM job WHERE id = :job_id)) AS by_strangers
    FROM opinion WHERE job_id = :job_id
    """
)
UNACCOUNTED = text(  # verdicts that do not tell of every judge, by an opinion or as missing
    """
    SELECT count(*) AS verdicts FROM verdict JOIN job ON job.id = verdict.job_id
    LEFT JOIN assessment ON assessment.job_id = verdict.job_id AND assessment.seq = verdict.seq
    WHERE verdict.job_id = :job_id AND (job.kind = 'judgement' OR assessment.selected IS NOT NULL)
      AND cardinality(job.judges) - coalesce(cardinality(verdict.missing), 0) <> (
        SELECT count(*) FROM opinion WHERE opinion.job_id = verdict.job_id AND opinion.seq = verdict.seq
    )
    """
)
UNHEARD = text(  # items that a finished chunk left without what its stage makes of them
    """
    SELECT count(*) AS items FROM chunk
    JOIN item ON item.job_id = chunk.job_id AND item.seq >= chunk.first_seq AND item.seq < chunk.end_seq
    LEFT JOIN assessment ON assessment.job_id = item.job_id AND assessment.seq = item.seq
    WHERE chunk.job_id = :job_id AND chunk.state = 'finished' AND CASE
        WHEN chunk.stage = 'hear' OR chunk.stage = 'compare' AND assessment.selected IS NOT NULL THEN NOT EXISTS (
            SELECT 1 FROM opinion
            WHERE opinion.job_id = item.job_id AND opinion.seq = item.seq AND opinion.judge = chunk.model
        )
        WHEN chunk.stage = 'reappraise' THEN NOT EXISTS (
            SELECT 1 FROM reappraisal WHERE reappraisal.job_id = item.job_id AND reappraisal.seq = item.seq
        )
        WHEN chunk.stage = 'score' THEN NOT EXISTS (
            SELECT 1 FROM score
            WHERE score.job_id = item.job_id AND score.seq = item.seq AND score.model = chunk.model
        )
        WHEN chunk.stage = 'choose' THEN assessment.seq IS NULL
        ELSE false
    END
    """
)
MIXED = text(  # scores whose calls are not all from the one epoch that their row names
    """
    SELECT count(*) AS calls FROM trace JOIN score
    ON score.job_id = trace.job_id AND score.seq = trace.seq AND score.model = trace.judge
    WHERE trace.job_id = :job_id AND trace.stage = 'score' AND trace.epoch_id <> score.epoch_id
    """
)
REWRITTEN = text(  # texts without the one call that wrote them, or calls without their text
    """
    SELECT count(*) AS items FROM reappraisal WHERE job_id = :job_id AND json_array_length(texts::json) <> (
        SELECT count(*) FROM trace
        WHERE trace.job_id = reappraisal.job_id AND trace.seq = reappraisal.seq AND trace.stage = 'reappraise'
    )
    """
)
CHUNKS = text(
    """
    SELECT count(DISTINCT ordinal) AS ordinals, count(*) FILTER (WHERE settles) AS settling,
           count(DISTINCT ordinal) FILTER (WHERE settles) AS settled,
           coalesce(sum(end_seq - first_seq) FILTER (WHERE settles), 0) AS items,
           count(*) FILTER (WHERE state IN ('waiting', 'queued', 'running')) AS open,
           count(*) FILTER (WHERE finished_version IS NULL) AS unfinished
    FROM chunk WHERE job_id = :job_id
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


def check_ended_job(engine: Engine, job_id: UUID, *, calls: bool = True) -> dict[str, Any]:
    """Assert every invariant of one ended job. Returns its row. Without `calls` nothing is said of its traces."""
    with transaction(engine) as connection:

        def one(statement: Any) -> dict[str, Any]:
            return dict(connection.execute(statement, {"job_id": job_id}).mappings().one())

        job = one(text("SELECT * FROM job WHERE id = :job_id"))
        counted, used = one(RECOUNT), one(USAGE)
        events = connection.execute(
            text("SELECT type, sequence FROM event WHERE job_id = :job_id ORDER BY sequence"), {"job_id": job_id}
        ).all()
        chunks, opinions, unheard, unaccounted = one(CHUNKS), one(OPINIONS), one(UNHEARD), one(UNACCOUNTED)
        mixed, rewritten = one(MIXED), one(REWRITTEN)
    status = JobStatus(job["status"])
    assert status in ENDED
    assert job["ended_at"] is not None
    assert chunks["open"] == chunks["unfinished"] == 0
    assert chunks["ordinals"] == chunks["settling"] == chunks["settled"]
    assert chunks["items"] == job["total"]
    assert job["total"] == job["succeeded"] + job["failed"] + job["cancelled"] + job["expired"]
    assert (job["succeeded"], job["failed"]) == (counted["succeeded"], counted["failed"])
    assert counted["verdicts"] == counted["items"]
    assert counted["items"] <= opinions["items"] or job["kind"] != "judgement"
    assert mixed["calls"] == 0
    assert rewritten["items"] == 0 or not calls
    assert opinions["given"] == opinions["distinct_ones"]
    assert opinions["by_strangers"] == unheard["items"] == 0
    assert unaccounted["verdicts"] == 0
    assert used["traces"] == used["distinct_calls"]
    for name in ("calls", "prompt_tokens", "completion_tokens"):
        # what is read again was spent by the job that heard it
        assert job[name] == (used[name] if job["reread_of"] is None else 0)
    assert [tuple(event) for event in events] == [(EVENTS[status], job["sequence"])]
    return job
