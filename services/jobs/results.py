"""Reading results and traces, as JSON text ready to be sent.

Guarantee: results stand in the order in which their chunks ended, so whoever goes on from a cursor meets every item
exactly once, also those that end meanwhile. What callers sent is spliced in unchanged. Reads are short: each page is a
query of its own, so that a slow reader holds no transaction; a stream whose job is deleted under it, or whose traces
are pruned, breaks off with an error and does not seem whole. Every query names the tenant.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping, text

from services.contract.webhooks import rfc3339
from services.foundation.database import transaction
from services.foundation.errors import NotFound, TracesPruned
from services.foundation.jsontext import escaped
from services.jobs.intake import custom_id_hash
from services.jobs.partitions import traces_kept
from services.jobs.queries import load_job
from services.jobs.shown import result
from services.jobs.stages import BEGUN
from services.vocabulary import ItemStatus

STORED_AS_JSON = ("reading", "label_logprobs", "sampling", "prompt", "completion", "error_message")
STREAM_PAGE = 500
TRACE_PAGE = 100

OUTCOME = """
    item.seq, item.custom_id, verdict.winner, verdict.p_a, verdict.consistent, verdict.standing, verdict.missing,
    verdict.disagreement, verdict.error_code, verdict.error_message,
    coalesce(verdict.calls, 0) AS calls, coalesce(verdict.prompt_tokens, 0) AS prompt_tokens,
    coalesce(verdict.cached_tokens, 0) AS cached_tokens, coalesce(verdict.completion_tokens, 0) AS completion_tokens,
    (SELECT string_agg(opinion.body::text, ',' ORDER BY opinion.judge) FROM opinion
     WHERE opinion.job_id = item.job_id AND opinion.seq = item.seq) AS opinions,
    reappraisal.texts, reappraisal.flags, assessment.selected, assessment.body AS assessment
"""

# The state of a chunk that settles is the status of those of its items that have no verdict: cancelled or expired. Such
# chunks do not overlap, so that within one version their first items order them; the lateral join keeps that order
# without sorting all results. The LIMIT 1 holds the planner to one look-up an item: it takes a chunk for far larger
# than it is.
RESULTS = text(
    f"""
    SELECT result.*, ended.finished_version
    FROM (
        SELECT chunk.job_id, chunk.first_seq, chunk.end_seq, chunk.state, chunk.finished_version, job.kind, job.judges
        FROM chunk JOIN job ON job.id = chunk.job_id
        WHERE job.tenant_id = :tenant_id AND job.id = :job_id AND job.deleted_at IS NULL AND chunk.settles
          AND chunk.finished_version >= :version
          AND (chunk.finished_version > :version OR chunk.end_seq > :seq + 1)
        ORDER BY chunk.finished_version, chunk.first_seq
    ) AS ended
    CROSS JOIN LATERAL (
        SELECT {OUTCOME}, coalesce(verdict.status, ended.state) AS status, ended.kind, ended.judges
        FROM item LEFT JOIN LATERAL (
            SELECT * FROM verdict WHERE verdict.job_id = item.job_id AND verdict.seq = item.seq LIMIT 1
        ) AS verdict ON true LEFT JOIN LATERAL (
            SELECT * FROM assessment WHERE assessment.job_id = item.job_id AND assessment.seq = item.seq LIMIT 1
        ) AS assessment ON true LEFT JOIN LATERAL (
            SELECT * FROM reappraisal WHERE reappraisal.job_id = item.job_id AND reappraisal.seq = item.seq LIMIT 1
        ) AS reappraisal ON true
        WHERE item.job_id = ended.job_id AND item.seq >= ended.first_seq AND item.seq < ended.end_seq
          AND (ended.finished_version > :version OR item.seq > :seq)
          AND (cast(:status AS text) IS NULL OR coalesce(verdict.status, ended.state) = :status)
        ORDER BY item.seq
    ) AS result
    ORDER BY ended.finished_version, ended.first_seq, result.seq LIMIT :limit
    """
)

ONE = text(
    f"""
    SELECT {OUTCOME}, item.input, job.day, job.id AS job_id, job.kind, job.judges,
           CASE WHEN verdict.status IS NOT NULL THEN verdict.status
                WHEN chunk.finished_version IS NOT NULL THEN chunk.state
                WHEN {BEGUN} THEN 'running' ELSE 'queued' END AS status
    FROM job JOIN item ON item.job_id = job.id
    JOIN chunk ON chunk.job_id = job.id AND chunk.settles AND item.seq >= chunk.first_seq AND item.seq < chunk.end_seq
    LEFT JOIN verdict ON verdict.job_id = item.job_id AND verdict.seq = item.seq
    LEFT JOIN assessment ON assessment.job_id = item.job_id AND assessment.seq = item.seq
    LEFT JOIN reappraisal ON reappraisal.job_id = item.job_id AND reappraisal.seq = item.seq
    WHERE job.tenant_id = :tenant_id AND job.id = :job_id AND job.deleted_at IS NULL
      AND item.custom_id_hash = cast(:hash AS uuid)
    """
)

# Day and job stand as values, so that the primary key of one partition gives the order.
TRACES = text(
    """
    SELECT item.custom_id, trace.seq, trace.stage, trace.judge, trace.call, trace.shown_order, trace.slots,
           trace.sample, trace.forced, trace.outcome, trace.reading::text AS reading, trace.prompt, trace.prompt_sha256,
           trace.completion, trace.finish_reason, trace.prompt_tokens, trace.cached_tokens, trace.completion_tokens,
           trace.label_logprobs::text AS label_logprobs, trace.sampling::text AS sampling, trace.error_message,
           trace.sent_at, trace.latency_ms, trace.queue_ms, trace.epoch_id
    FROM trace JOIN item ON item.job_id = trace.job_id AND item.seq = trace.seq
    WHERE trace.day = :day AND trace.job_id = :job_id AND trace.seq <= :last_seq
      AND (trace.seq, trace.stage, trace.judge, trace.call) > (:seq, :stage, :judge, :call)
      AND EXISTS (SELECT 1 FROM job WHERE job.id = :job_id AND job.tenant_id = :tenant_id AND job.deleted_at IS NULL)
    ORDER BY trace.seq, trace.stage, trace.judge, trace.call LIMIT :limit
    """
)
LAST_SEQ = 2**31 - 1


class Cursor(NamedTuple):
    """Where in the results a reader stands: behind the item `seq` of the chunk that ended as `version`."""

    version: int = 0
    seq: int = -1

    def __str__(self) -> str:
        return f"{self.version}.{self.seq}"

    @classmethod
    def parsed(cls, shown: str) -> "Cursor | None":
        """The cursor that `shown` is, or None."""
        match = re.fullmatch(r"(\d{1,18})\.(\d{1,9})", shown, re.ASCII)
        return cls(int(match[1]), int(match[2])) if match else None


START = Cursor()


class TraceCursor(NamedTuple):
    """Behind which trace a reader stands; without a stage, before all traces of the item `seq`."""

    seq: int
    stage: str = ""
    judge: str = ""
    call: int = -1


@dataclass(frozen=True, slots=True)
class Page:
    """Some results, each a JSON text, and where to go on; `more` results are there already."""

    lines: Sequence[str]
    cursor: Cursor
    more: bool


def results_page(
    connection: Connection,
    tenant_id: UUID,
    job_id: UUID,
    limit: int,
    after: Cursor = START,
    status: ItemStatus | None = None,
) -> Page:
    """Up to `limit` results that come after the cursor. A job that is not the tenant's has none."""
    bound = {
        "tenant_id": tenant_id,
        "job_id": job_id,
        "version": after.version,
        "seq": after.seq,
        "status": status,
        "limit": limit + 1,
    }
    rows = connection.execute(RESULTS, bound).mappings().all()
    more = len(rows) > limit
    rows = rows[:limit]
    cursor = Cursor(rows[-1]["finished_version"], rows[-1]["seq"]) if rows else after
    return Page([f"{result(row)}}}" for row in rows], cursor, more)


def stream_results(
    engine: Engine, tenant_id: UUID, job_id: UUID, after: Cursor = START, status: ItemStatus | None = None
) -> Iterator[Sequence[str]]:
    """Every result after the cursor that is there by the end of the reading, page by page, one JSON text each.

    Raises NotFound, also when the job is deleted meanwhile.
    """
    cursor, more = after, True
    while more:
        with transaction(engine) as connection:
            page = results_page(connection, tenant_id, job_id, STREAM_PAGE, cursor, status)
            if not page.more:
                load_job(connection, tenant_id, job_id)
        yield page.lines
        cursor, more = page.cursor, page.more


def one_result(connection: Connection, tenant_id: UUID, job_id: UUID, custom_id: str) -> str:
    """One item with all that is known about it, as JSON text (`contract.results.ResultDetail`). Raises NotFound."""
    bound = {"tenant_id": tenant_id, "job_id": job_id, "hash": custom_id_hash(custom_id)}
    row = connection.execute(ONE, bound).mappings().first()
    if row is None:
        raise NotFound("there is no such job, or no such item in it")
    first = TraceCursor(row["seq"])
    found = _traces(connection, tenant_id, job_id, row["day"], after=first, last_seq=row["seq"], limit=None)
    traces = f"[{','.join(map(_trace, found))}]" if found or traces_kept(connection, row["day"]) else "null"
    return f'{result(row)},"item":{row["input"]},"opinions":[{row["opinions"] or ""}],"traces":{traces}}}'


def check_traces(connection: Connection, tenant_id: UUID, job_id: UUID) -> date:
    """The day of a job whose traces are kept. Raises NotFound, TracesPruned."""
    day = load_job(connection, tenant_id, job_id).day
    if not traces_kept(connection, day):
        raise TracesPruned("the traces of this job are not kept any more")
    return day


def stream_traces(engine: Engine, tenant_id: UUID, job_id: UUID, day: date) -> Iterator[Sequence[str]]:
    """Every trace of a job made on `day`, by item and call, page by page, one JSON text (`results.Trace`) each.

    Raises NotFound and TracesPruned, also when they are gone meanwhile.
    """
    cursor = TraceCursor(-1)
    while True:
        with transaction(engine) as connection:
            rows = _traces(connection, tenant_id, job_id, day, after=cursor, last_seq=LAST_SEQ, limit=TRACE_PAGE)
            if len(rows) < TRACE_PAGE:
                check_traces(connection, tenant_id, job_id)
        yield [_trace(row) for row in rows]
        if len(rows) < TRACE_PAGE:
            return
        last = rows[-1]
        cursor = TraceCursor(last["seq"], last["stage"], last["judge"], last["call"])


def _traces(
    connection: Connection,
    tenant_id: UUID,
    job_id: UUID,
    day: date,
    *,
    after: TraceCursor,
    last_seq: int,
    limit: int | None,
) -> Sequence[RowMapping]:
    bound = {
        "tenant_id": tenant_id,
        "job_id": job_id,
        "day": day,
        "last_seq": last_seq,
        "limit": limit,
        **after._asdict(),
    }
    return connection.execute(TRACES, bound).mappings().all()


def _trace(row: RowMapping) -> str:
    plain = {
        "seq": row["seq"],
        "stage": row["stage"],
        "judge": row["judge"],
        "call": row["call"],
        "order": row["shown_order"],
        "slots": row["slots"],
        "sample": row["sample"],
        "forced": row["forced"],
        "outcome": row["outcome"],
        "finish_reason": row["finish_reason"],
        "prompt_sha256": row["prompt_sha256"],
        "prompt_tokens": row["prompt_tokens"],
        "cached_tokens": row["cached_tokens"],
        "completion_tokens": row["completion_tokens"],
        "sent_at": rfc3339(row["sent_at"]) if row["sent_at"] else None,
        "latency_ms": row["latency_ms"],
        "queue_ms": row["queue_ms"],
        "epoch_id": str(row["epoch_id"]),
    }
    kept = ",".join(f'"{name}":{row[name] or "null"}' for name in STORED_AS_JSON)
    return f'{{"custom_id":{row["custom_id"]},{escaped(plain)[1:-1]},{kept}}}'
