"""Recording what a worker heard: flushes, and the end of a chunk.

Guarantee: a batch is written once or not at all, and only by who holds the chunk. A commit whose answer was lost is
recognised by the chunk's flush count and not repeated; a writer that lost its chunk gets Fenced and has written
nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping, text

from services.foundation.database import copy_rows, transaction
from services.foundation.errors import Fenced
from services.jobs.claim import Claim
from services.jobs.deaths import InFlight, isolate, tell_of_death
from services.jobs.end import end_chunk, expire_job, lock_job
from services.judging.heard import Heard
from services.judging.proceeding import Spent
from services.vocabulary import ChunkState, DeathCause, ItemStatus, JobStatus

TRACE_COLUMNS = (
    "day",
    "job_id",
    "seq",
    "stage",
    "judge",
    "call",
    "shown_order",
    "slots",
    "sample",
    "forced",
    "epoch_id",
    "outcome",
    "reading",
    "prompt",
    "prompt_sha256",
    "completion",
    "finish_reason",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "label_logprobs",
    "sampling",
    "error_message",
    "sent_at",
    "latency_ms",
    "queue_ms",
)
OPINION_COLUMNS = ("job_id", "seq", "judge", "body")
VERDICT_COLUMNS = (
    "job_id",
    "seq",
    "status",
    "winner",
    "p_a",
    "consistent",
    "standing",
    "missing",
    "disagreement",
    "error_code",
    "error_message",
    "calls",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
)
USAGE = ("calls", "prompt_tokens", "cached_tokens", "completion_tokens")
REAPPRAISAL_COLUMNS = ("job_id", "seq", "texts", "flags", *USAGE)
SCORE_COLUMNS = ("job_id", "seq", "model", "epoch_id", "scores", "outcomes", "valid", "asked", "flags", *USAGE)
ASSESSMENT_COLUMNS = ("job_id", "seq", "selected", "body")

LOCK_CHUNK = text(
    """
    SELECT state, fence, claimed_by, flushes FROM chunk
    WHERE job_id = :job_id AND stage = :stage AND ordinal = :ordinal AND part = :part AND model = :model FOR UPDATE
    """
)

MOVE_CHUNK = text(
    """
    UPDATE chunk SET flushes = flushes + 1, succeeded = succeeded + :succeeded, failed = failed + :failed,
        calls = calls + :calls, prompt_tokens = prompt_tokens + :prompt_tokens,
        cached_tokens = cached_tokens + :cached_tokens, completion_tokens = completion_tokens + :completion_tokens
    WHERE job_id = :job_id AND stage = :stage AND ordinal = :ordinal AND part = :part AND model = :model
    """
)

# What was never sent counts as no call.
SPENT = text(
    """
    SELECT count(*) AS calls, coalesce(sum(trace.prompt_tokens), 0) AS prompt_tokens,
           coalesce(sum(trace.cached_tokens), 0) AS cached_tokens,
           coalesce(sum(trace.completion_tokens), 0) AS completion_tokens
    FROM job JOIN trace ON trace.day = job.day AND trace.job_id = job.id
    WHERE job.id = :job_id AND trace.seq = :seq AND trace.sent_at IS NOT NULL
    """
)

RELEASE = text(
    """
    UPDATE chunk SET state = 'queued'
    WHERE job_id = :job_id AND stage = :stage AND ordinal = :ordinal AND part = :part AND model = :model
      AND state = 'running' AND fence = :fence
    """
)


@dataclass(slots=True)
class Batch:
    """Rows that belong together, in the column orders above. Tokens count the calls of `traces` alone."""

    traces: list[tuple[Any, ...]] = field(default_factory=list)
    opinions: list[tuple[Any, ...]] = field(default_factory=list)
    reappraisals: list[tuple[Any, ...]] = field(default_factory=list)
    scores: list[tuple[Any, ...]] = field(default_factory=list)
    assessments: list[tuple[Any, ...]] = field(default_factory=list)
    verdicts: list[tuple[Any, ...]] = field(default_factory=list)
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __bool__(self) -> bool:
        return self.rows > 0

    @property
    def rows(self) -> int:
        """How many rows there are, in all tables."""
        return sum(len(rows) for _, _, rows in self.tables())

    def tables(self) -> Iterator[tuple[str, tuple[str, ...], list[tuple[Any, ...]]]]:
        """The rows of each table, and their columns."""
        yield "trace", TRACE_COLUMNS, self.traces
        yield "opinion", OPINION_COLUMNS, self.opinions
        yield "reappraisal", REAPPRAISAL_COLUMNS, self.reappraisals
        yield "score", SCORE_COLUMNS, self.scores
        yield "assessment", ASSESSMENT_COLUMNS, self.assessments
        yield "verdict", VERDICT_COLUMNS, self.verdicts

    def add_trace(self, row: tuple[Any, ...], heard: Heard, *, sent: bool) -> None:
        """Add the trace of one call; what was never sent to the runtime counts as no call."""
        self.traces.append(row)
        if sent:
            self.calls += 1
            self.prompt_tokens += heard.prompt_tokens or 0
            self.cached_tokens += heard.cached_tokens or 0
            self.completion_tokens += heard.completion_tokens or 0

    def take(self, other: "Batch") -> None:
        """Add the traces of `other`, and what they cost."""
        self.traces += other.traces
        self.calls += other.calls
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.completion_tokens += other.completion_tokens

    def counts(self) -> dict[str, int]:
        """What this batch adds to the chunk's counters."""
        succeeded = sum(1 for row in self.verdicts if row[2] == ItemStatus.SUCCEEDED)
        return {
            "succeeded": succeeded,
            "failed": len(self.verdicts) - succeeded,
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
        }


def write_batch(connection: Connection, key: Mapping[str, Any], batch: Batch) -> None:
    """Write a batch and move the counters of the chunk that `key` names, which the caller has locked."""
    for table, columns, rows in batch.tables():
        if rows:
            copy_rows(connection, table, columns, rows)
    connection.execute(MOVE_CHUNK, {**key, **batch.counts()})


def spent_on(connection: Connection, job_id: UUID, seq: int) -> Spent:
    """What the calls of an item took that are written down, in all stages."""
    return Spent(**connection.execute(SPENT, {"job_id": job_id, "seq": seq}).mappings().one())


class Recorder:
    """Writes one claimed chunk. Not for use by several threads at once."""

    def __init__(self, engine: Engine, held: Claim, public_url: str) -> None:
        self._engine = engine
        self._held = held
        self._public_url = public_url
        self._flushes = held.flushes

    def flush(self, batch: Batch) -> None:
        """Write a batch in one transaction. Raises Fenced; a database error leaves the batch to be flushed again."""
        if not batch:
            return
        with transaction(self._engine) as connection:
            self._write(connection, batch)
        self._flushes += 1

    def end(self, batch: Batch) -> None:
        """Write the last batch and end the chunk, in one transaction. Raises Fenced as `flush` does."""
        with transaction(self._engine) as connection:
            job = self._lock_job(connection)
            if self._lock_chunk(connection, ended=ChunkState.FINISHED)["state"] == ChunkState.FINISHED:
                return  # an earlier attempt was committed, only the answer was lost
            if batch:
                self._write(connection, batch)
            end_chunk(connection, job, self._held.key, ChunkState.FINISHED, self._public_url)

    def release(self, batch: Batch, *, died: bool = False) -> None:
        """Write what was heard and give the chunk up: to the next claim, or, as the job stands, to its end.

        Handed back it is unharmed, unless the work at it `died`. Raises Fenced as `flush` does.
        """
        with transaction(self._engine) as connection:
            job = self._lock_job(connection)
            self._lock_chunk(connection)
            if batch:
                self._write(connection, batch)
            if job["status"] == JobStatus.CANCELLING:
                end_chunk(connection, job, self._held.key, ChunkState.CANCELLED, self._public_url)
            elif job["overdue"]:
                expire_job(connection, job, self._public_url)
            else:
                connection.execute(RELEASE, self._held.claim_key._asdict())
                if died:
                    flight = InFlight(self._held.claim_key, self._held.alone)
                    tell_of_death(connection, flight, DeathCause.ERROR, self._held.worker_id, None)
                isolate(connection, self._held.key)

    def _lock_job(self, connection: Connection) -> RowMapping:
        job = lock_job(connection, self._held.job_id)
        if job is None:
            raise Fenced("the job is gone")
        return job

    def _lock_chunk(self, connection: Connection, *, ended: ChunkState = ChunkState.RUNNING) -> RowMapping:
        """The chunk's row, locked, when it is this worker's and running (or `ended` as an earlier attempt left it)."""
        chunk = connection.execute(LOCK_CHUNK, self._held.key).mappings().first()
        if chunk is None or chunk["fence"] != self._held.fence or chunk["claimed_by"] != self._held.worker_id:
            raise Fenced("the chunk has moved on")
        if chunk["state"] not in (ChunkState.RUNNING, ended):
            raise Fenced(f"the chunk is {chunk['state']}")
        return chunk

    def _write(self, connection: Connection, batch: Batch) -> None:
        chunk = self._lock_chunk(connection)
        if chunk["flushes"] == self._flushes + 1:
            return  # this very batch was committed, only the answer was lost
        write_batch(connection, self._held.key, batch)
