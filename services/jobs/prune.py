"""Retention: what an installation keeps no longer than it wants to.

Guarantee: by default nothing goes but what nobody can ask for any more. What goes by its age is a whole day's traces,
dropped, or a whole job, deleted as its owner could delete it; neither while a job is open that reads it. A drop waits a
fraction of a second for its lock and gives up: calls are recorded meanwhile as ever.
"""

from datetime import date, timedelta
from uuid import UUID

import structlog
from sqlalchemy import Engine, text

from services.foundation.database import PASSING, transaction
from services.jobs.delete import lock_linked, mark_deleted
from services.jobs.partitions import drop_partition, take_traces
from services.vocabulary import Stage

JOBS_AT_ONCE = 1_000

log = structlog.get_logger(__name__)

OLD = """
    ended_at < now() - :keep AND deleted_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM job AS reader WHERE reader.reread_of = job.id AND reader.ended_at IS NULL)
"""
OLD_JOBS = text(
    f"""
    SELECT id, ended_at FROM job WHERE (ended_at, id) > (:ended_at, :id) AND {OLD} ORDER BY ended_at, id LIMIT :limit
    """
)
STILL_OLD = text(f"SELECT id FROM job WHERE id = ANY(:jobs) AND {OLD}")
FIRST = {"ended_at": "-infinity", "id": UUID(int=0)}

# A plan may read the names of other tables before it knows them from partitions: they have no day, which is no error.
# Nothing is added to a day before yesterday. Its jobs may still be open; without any job nobody can ask for its traces.
_OLD_TRACES = """
    SELECT partition.day FROM (
        SELECT to_date(substring(relname FROM '^trace_([0-9_]+)$'), 'YYYY_MM_DD') AS day
        FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'trace'::regclass
    ) AS partition
    WHERE {which}
      AND NOT EXISTS (
          SELECT 1 FROM job WHERE job.day = partition.day
            AND coalesce(job.ended_at > now() - cast(:keep AS interval), true)
      ) AND NOT EXISTS (
          SELECT 1 FROM job AS reader JOIN job AS source ON source.id = reader.reread_of
          WHERE source.day = partition.day AND reader.ended_at IS NULL
      )
    ORDER BY partition.day
"""
OLD_TRACES = text(_OLD_TRACES.format(which="partition.day < (now() AT TIME ZONE 'utc')::date - 1"))
OLD_TRACES_OF_DAY = text(_OLD_TRACES.format(which="partition.day = :day"))
PATIENCE = text("SET LOCAL lock_timeout = '200ms'")  # behind a drop that waits, everybody waits

# A runtime's start stays as long as any job that it may have heard. What is read again keeps the starts of the job that
# was read, which may be gone: while there is such a job, all stay.
FORGOTTEN = f"""
    SELECT runtime_epoch.id FROM runtime_epoch JOIN worker ON worker.id = runtime_epoch.worker_id
    WHERE worker.lease_until < now() - interval '30 days'
      AND worker.lease_until < coalesce((SELECT min(day)::timestamp AT TIME ZONE 'utc' FROM job), now())
      AND NOT EXISTS (SELECT 1 FROM chunk WHERE stage = '{Stage.REREAD}')
"""
FORGET_ANCHORS = text(f"DELETE FROM anchor_scores WHERE epoch_id IN ({FORGOTTEN})")
FORGET_EPOCHS = text(f"DELETE FROM runtime_epoch WHERE id IN ({FORGOTTEN})")
FORGET_WORKERS = text(
    """
    DELETE FROM worker WHERE lease_until < now() - interval '30 days'
      AND NOT EXISTS (SELECT 1 FROM runtime_epoch WHERE runtime_epoch.worker_id = worker.id)
    """
)


def delete_old_jobs(engine: Engine, keep: timedelta) -> int:
    """Delete the jobs that ended longer than `keep` ago. Returns how many."""
    deleted = 0
    last = FIRST
    while True:
        with transaction(engine) as connection:
            page = connection.execute(OLD_JOBS, {"keep": keep, "limit": JOBS_AT_ONCE, **last}).mappings().all()
            jobs = [job["id"] for job in page]
            lock_linked(connection, jobs)
            old = connection.execute(STILL_OLD, {"keep": keep, "jobs": jobs}).scalars().all()
            mark_deleted(connection, old)
        deleted += len(old)
        if len(page) < JOBS_AT_ONCE:
            return deleted
        last = dict(page[-1])


def drop_old_traces(engine: Engine, keep: timedelta | None) -> list[str]:
    """Drop the traces of days whose jobs all ended longer than `keep` ago, or are gone; None keeps those of any job.

    Returns the partitions that were dropped. One that is being read just now is left to the next time.
    """
    with transaction(engine) as connection:
        days = connection.execute(OLD_TRACES, {"keep": keep}).scalars().all()
    dropped = []
    for day in days:
        try:
            if partition := _drop(engine, day, keep):
                dropped.append(partition)
        except PASSING as error:
            log.warning("drop_postponed", day=day.isoformat(), error=type(error.orig).__name__)
    return dropped


def _drop(engine: Engine, day: date, keep: timedelta | None) -> str | None:
    """Returns the partition's name; None: its traces are not old any more, as they are about to be read again."""
    with transaction(engine) as connection:
        connection.execute(PATIENCE)
        take_traces(connection, day)
        if connection.scalar(OLD_TRACES_OF_DAY, {"keep": keep, "day": day}) is None:
            return None
        return drop_partition(connection, day)


def forget_workers(engine: Engine) -> int:
    """Forget workers that have been gone for a month, and the starts of their runtimes that no job was heard by.

    Returns the number of workers.
    """
    with transaction(engine) as connection:
        connection.execute(FORGET_ANCHORS)
        connection.execute(FORGET_EPOCHS)
        return connection.execute(FORGET_WORKERS).rowcount
