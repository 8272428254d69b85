"""The invariants that hold whatever broke, checked against the database after a job has ended.

Guarantee: a row that was written twice, under a lost claim or not at all fails here, whichever test made it.
"""

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
    SELECT count(DISTINCT (stage, model)) FILTER (WHERE settles) AS settling,
           count(*) FILTER (WHERE state IN ('waiting', 'queued', 'running')) AS open,
           count(*) FILTER (WHERE finished_version IS NULL) AS unfinished, max(finished_version) AS last_version
    FROM chunk WHERE job_id = :job_id
    """
)
ITEMS = text("SELECT count(*) AS items, min(seq) AS first, max(seq) AS last FROM item WHERE job_id = :job_id")
COVERAGE = text(  # models whose chunks of a stage do not hold every item exactly once
    """
    SELECT stage, model FROM chunk JOIN job ON job.id = chunk.job_id WHERE job_id = :job_id GROUP BY stage, model, total
    HAVING sum(end_seq - first_seq) <> total
        OR range_agg(int4range(first_seq, end_seq)) <> int4multirange(int4range(0, total))
    """
)
APART = text(  # ordinals of which one model of one stage has other items than another
    """
    SELECT ordinal FROM (
        SELECT ordinal, range_agg(int4range(first_seq, end_seq)) AS items FROM chunk
        WHERE job_id = :job_id GROUP BY ordinal, stage, model
    ) AS held GROUP BY ordinal HAVING count(DISTINCT items) > 1
    """
)
# A batch moves its chunk's counters in the transaction that writes it: what somebody wrote who was fenced would be
# a row that no chunk counts. The chunks of an ordinal are added up, as parts do not take along what was spent before.
UNCOUNTED = text(
    """
    SELECT counted.stage, counted.model, counted.ordinal FROM (
        SELECT stage, model, ordinal, bool_and(settles) AS settles, min(first_seq) AS first_seq,
               max(end_seq) AS end_seq, sum(calls) AS calls, sum(completion_tokens) AS tokens,
               sum(succeeded) AS succeeded, sum(failed) AS failed
        FROM chunk WHERE job_id = :job_id GROUP BY stage, model, ordinal
    ) AS counted, LATERAL (
        SELECT count(*) AS calls, coalesce(sum(completion_tokens), 0) AS tokens FROM trace
        WHERE trace.job_id = :job_id AND trace.stage = counted.stage AND trace.judge = counted.model
          AND seq >= counted.first_seq AND seq < counted.end_seq AND sent_at IS NOT NULL
    ) AS sent, LATERAL (
        SELECT count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
               count(*) FILTER (WHERE status = 'failed') AS failed
        FROM verdict WHERE verdict.job_id = :job_id AND seq >= counted.first_seq AND seq < counted.end_seq
    ) AS stored
    WHERE (:calls AND (counted.calls, counted.tokens) <> (sent.calls, sent.tokens))
       OR (counted.succeeded, counted.failed)
          <> (CASE WHEN settles THEN stored.succeeded ELSE 0 END, CASE WHEN settles THEN stored.failed ELSE 0 END)
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
TOLD = text(
    """
    SELECT count(DISTINCT delivery.id) AS deliveries,
           count(*) FILTER (WHERE delivery.state = 'delivered' AND status BETWEEN 200 AND 299) AS good
    FROM event JOIN delivery ON delivery.event_id = event.id
    LEFT JOIN delivery_attempt ON delivery_attempt.delivery_id = delivery.id
    WHERE event.job_id = :job_id
    """
)


def check_ended_job(engine: Engine, job_id: UUID, *, calls: bool = True) -> dict[str, Any]:
    """Assert every invariant of one ended job. Returns its row. Without `calls` nothing is said of its traces."""
    with transaction(engine) as connection:

        def every(statement: Any, **values: Any) -> list[dict[str, Any]]:
            return [dict(row) for row in connection.execute(statement, {"job_id": job_id, **values}).mappings()]

        def one(statement: Any) -> dict[str, Any]:
            (row,) = every(statement)
            return row

        job = one(text("SELECT * FROM job WHERE id = :job_id"))
        heard_here = job["reread_of"] is None  # what is read again was spent by the job that heard it
        counted, used, items = one(RECOUNT), one(USAGE), one(ITEMS)
        events = connection.execute(
            text("SELECT type, sequence FROM event WHERE job_id = :job_id ORDER BY sequence"), {"job_id": job_id}
        ).all()
        chunks, opinions, unheard, unaccounted = one(CHUNKS), one(OPINIONS), one(UNHEARD), one(UNACCOUNTED)
        mixed, rewritten = one(MIXED), one(REWRITTEN)
        uncovered, apart = every(COVERAGE), every(APART)
        uncounted = every(UNCOUNTED, calls=calls and heard_here)
    status = JobStatus(job["status"])
    assert status in ENDED
    assert job["ended_at"] is not None
    assert job["created_at"] <= (job["started_at"] or job["created_at"]) <= job["ended_at"]
    assert (items["items"], items["first"], items["last"]) == (job["total"], 0, job["total"] - 1)
    assert chunks["open"] == chunks["unfinished"] == 0
    assert chunks["settling"] == 1
    assert chunks["last_version"] <= job["version"]
    assert uncovered == apart == uncounted == []
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
        assert job[name] == (used[name] if heard_here else 0)
    assert [tuple(event) for event in events] == [(EVENTS[status], job["sequence"])]
    return job


def check_told(engine: Engine, job_id: UUID) -> None:
    """Assert that the end of a job with a callback was told: one delivery, with an attempt that was answered well."""
    with transaction(engine) as connection:
        told = connection.execute(TOLD, {"job_id": job_id}).one()
    assert told.deliveries == 1
    assert told.good >= 1
