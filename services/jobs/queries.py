"""Reading jobs: their state with live counts, and lists of them.

Guarantee: every query names the tenant; another tenant's job is not there, nor a deleted one. Counts always sum to the
total, since they come out of one statement.
"""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, text

from services.contract.jobs import Counts, Job, Progress, TokenUsage
from services.contract.options import JobSettings, ReappraisalSettings, read_settings
from services.contract.webhooks import Callback
from services.foundation.errors import Conflict, NotFound
from services.foundation.identifiers import shown
from services.jobs.stages import BEGUN
from services.vocabulary import JobKind, JobStatus, Priority

# The job's own numbers are those of its ended chunks; open chunks hold the rest. Items stand where the chunk that
# settles them stands.
LIVE = f"""
    SELECT job.*, now() AS now, open.running,
           job.succeeded + open.succeeded AS live_succeeded, job.failed + open.failed AS live_failed,
           job.calls + open.calls AS live_calls, job.prompt_tokens + open.prompt_tokens AS live_prompt_tokens,
           job.cached_tokens + open.cached_tokens AS live_cached_tokens,
           job.completion_tokens + open.completion_tokens AS live_completion_tokens
    FROM job CROSS JOIN LATERAL (
        SELECT coalesce(sum(end_seq - first_seq - succeeded - failed) FILTER (WHERE settles AND {BEGUN}), 0) AS running,
               coalesce(sum(succeeded), 0) AS succeeded, coalesce(sum(failed), 0) AS failed,
               coalesce(sum(calls), 0) AS calls, coalesce(sum(prompt_tokens), 0) AS prompt_tokens,
               coalesce(sum(cached_tokens), 0) AS cached_tokens,
               coalesce(sum(completion_tokens), 0) AS completion_tokens
        FROM chunk WHERE chunk.job_id = job.id AND chunk.state IN ('waiting', 'queued', 'running')
    ) AS open
"""
ONE = text(f"{LIVE} WHERE job.tenant_id = :tenant_id AND job.id = :job_id AND job.deleted_at IS NULL")
PAGE = text(
    f"""
    {LIVE} WHERE job.tenant_id = :tenant_id AND job.id < :before AND job.deleted_at IS NULL
    AND (cast(:status AS text) IS NULL OR job.status = :status)
    ORDER BY job.id DESC LIMIT :limit
    """
)
SOURCE = text("SELECT * FROM job WHERE tenant_id = :tenant_id AND id = :job_id AND deleted_at IS NULL FOR SHARE")
LAST_ID = UUID(int=(1 << 128) - 1)

POLL_SOONEST = 1
POLL_LATEST = 60


class JobView:
    """A job as it stood at one moment."""

    def __init__(self, row: RowMapping) -> None:
        self._row = row

    @property
    def ended(self) -> bool:
        """True when nothing about the job will change any more."""
        return self._row["ended_at"] is not None

    @property
    def day(self) -> date:
        """The day (UTC) on which it was made: where its traces are."""
        day: date = self._row["day"]
        return day

    @property
    def etag(self) -> str:
        """A weak entity tag, unquoted: another one whenever a caller could see another job."""
        row = self._row
        return f"{row['version']}.{row['live_succeeded'] + row['live_failed']}.{row['running']}.{row['live_calls']}"

    @property
    def retry_after(self) -> int | None:
        """Seconds after which it is worth asking again: a tenth of what is still to do. None when the job has ended."""
        if self.ended:
            return None
        per_second, _ = self._pace()
        left = self._row["total"] - self._done
        return POLL_SOONEST if not per_second else int(min(max(POLL_SOONEST, left / per_second / 10), POLL_LATEST))

    def as_json(self) -> str:
        """The job (`contract.jobs.Job`) as JSON text, its metadata exactly as sent."""
        body = self._model().model_dump_json(exclude={"metadata"})
        return f'{body[:-1]},"metadata":{self._row["metadata_json"]}}}'

    @property
    def _done(self) -> int:
        row = self._row
        return int(row["live_succeeded"] + row["live_failed"] + row["cancelled"] + row["expired"])

    @property
    def _left(self) -> int:
        return int(self._row["total"] - self._done)

    def _pace(self) -> tuple[float | None, datetime | None]:
        """Items a second since the start, and when none will be left."""
        row = self._row
        heard = row["live_succeeded"] + row["live_failed"]
        if row["started_at"] is None or not heard:
            return None, None
        seconds = ((row["ended_at"] or row["now"]) - row["started_at"]) / timedelta(seconds=1)
        per_second = float(heard) / max(seconds, 0.001)
        if self.ended:
            return per_second, None
        return per_second, row["now"] + timedelta(seconds=(row["total"] - self._done) / per_second)

    def _model(self) -> Job:
        row = self._row
        per_second, eta = self._pace()
        callback = row["callback"]
        settings = read_settings(row["kind"], row["settings"])
        committee = None if isinstance(settings, JobSettings) else settings.committee
        return Job(
            id=shown("job", row["id"]),
            kind=JobKind(row["kind"]),
            status=JobStatus(row["status"]),
            name=row["name"],
            reread_of=shown("job", row["reread_of"]) if row["reread_of"] else None,
            retry_of=shown("job", row["retry_of"]) if row["retry_of"] else None,
            judges=row["judges"],
            model=settings.model if isinstance(settings, ReappraisalSettings) else None,
            committee=committee.name if committee else None,
            priority=Priority(row["priority"]).name.lower(),
            options=settings.judges if isinstance(settings, JobSettings) else settings,
            panel=settings.panel if isinstance(settings, JobSettings) else None,
            counts=Counts(
                total=row["total"],
                queued=self._left - row["running"],
                running=row["running"],
                succeeded=row["live_succeeded"],
                failed=row["live_failed"],
                cancelled=row["cancelled"],
                expired=row["expired"],
            ),
            usage=TokenUsage(
                calls=row["live_calls"],
                prompt_tokens=row["live_prompt_tokens"],
                cached_tokens=row["live_cached_tokens"],
                completion_tokens=row["live_completion_tokens"],
            ),
            progress=Progress(
                done=self._done,
                per_second=None if per_second is None else round(per_second, 3),
                eta=eta,
            ),
            version=row["version"],
            created_at=row["created_at"],
            started_at=row["started_at"],
            cancelling_at=row["cancelling_at"],
            ended_at=row["ended_at"],
            deadline=row["deadline"],
            callback=Callback.model_validate_json(callback) if callback else None,
            metadata={},
        )


def load_job(connection: Connection, tenant_id: UUID, job_id: UUID) -> JobView:
    """One job. Raises NotFound, also for another tenant's, and for a deleted one."""
    row = connection.execute(ONE, {"tenant_id": tenant_id, "job_id": job_id}).mappings().first()
    if row is None:
        raise NotFound("there is no such job")
    return JobView(row)


def lock_ended(connection: Connection, tenant_id: UUID, job_id: UUID) -> RowMapping:
    """The row of an ended job, which nobody deletes before the transaction ends.

    Raises NotFound as `load_job` does; Conflict while the job has not ended.
    """
    row = connection.execute(SOURCE, {"tenant_id": tenant_id, "job_id": job_id}).mappings().first()
    if row is None:
        raise NotFound("there is no such job")
    if row["ended_at"] is None:
        raise Conflict("the job has not ended yet")
    return row


def list_jobs(
    connection: Connection, tenant_id: UUID, limit: int, after: UUID | None = None, status: JobStatus | None = None
) -> tuple[Sequence[JobView], UUID | None]:
    """Up to `limit` jobs, newest first, older than the job `after`; and the last one's id when there are more."""
    bound: dict[str, Any] = {
        "tenant_id": tenant_id,
        "before": after or LAST_ID,
        "status": status,
        "limit": limit + 1,
    }
    rows = connection.execute(PAGE, bound).mappings().all()
    more = len(rows) > limit
    return [JobView(row) for row in rows[:limit]], rows[limit - 1]["id"] if more else None
