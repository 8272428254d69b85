"""Retention: what an installation keeps no longer than it wants to.

Guarantee: by default nothing goes but what nobody can ask for any more. What goes by its age is a whole day's traces,
dropped, or a whole job, deleted as its owner could delete it; neither while a job is open that reads it. A drop waits a
fraction of a second for its lock and gives up: calls are recorded meanwhile as ever.
"""

from collections.abc import Sequence
from datetime import timedelta

import structlog
from sqlalchemy import Engine, text

from services.foundation.database import PASSING, transaction
from services.jobs.delete import mark_deleted
from services.vocabulary import Stage

JOBS_AT_ONCE = 1_000

log = structlog.get_logger(__name__)

OLD_JOBS = text(
    """
    SELECT id FROM job
    WHERE ended_at < now() - :keep AND deleted_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM job AS reader WHERE reader.reread_of = job.id AND reader.ended_at IS NULL)
    ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
    """
)

# Nothing is added to a day before yesterday. Its jobs may still be open; without any job nobody can ask for its traces.
OLD_TRACES = text(
    """
    SELECT partition.name FROM (
        SELECT relname AS name, to_date(relname, '"trace_"YYYY_MM_DD') AS day
        FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'trace'::regclass
    ) AS partition
    WHERE partition.day < (now() AT TIME ZONE 'utc')::date - 1
      AND NOT EXISTS (
          SELECT 1 FROM job WHERE job.day = partition.day
            AND coalesce(job.ended_at > now() - cast(:keep AS interval), true)
      ) AND NOT EXISTS (
          SELECT 1 FROM job AS reader JOIN job AS source ON source.id = reader.reread_of
          WHERE source.day = partition.day AND reader.ended_at IS NULL
      )
    ORDER BY partition.day
    """
)
PATIENCE = text("SET LOCAL lock_timeout = '200ms'")  # behind a drop that waits, everybody waits

# A runtime's start stays as long as any job that it may have heard. What is read again keeps the starts of the job that
# was read, which may be gone: while there is such a job, all stay.
FORGOTTEN = f"""
    SELECT runtime_epoch.id FROM runtime_epoch JOIN worker ON worker.id = runtime_epoch.worker_id
    WHERE worker.lease_until < now() - interval '30 days'
      AND worker.lease_until < coalesce((SELECT min(created_at) FROM job), now())
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
    while True:
        with transaction(engine) as connection:
            jobs = connection.execute(OLD_JOBS, {"keep": keep, "limit": JOBS_AT_ONCE}).scalars().all()
            mark_deleted(connection, jobs)
        deleted += len(jobs)
        if len(jobs) < JOBS_AT_ONCE:
            return deleted


def drop_old_traces(engine: Engine, keep: timedelta | None) -> list[str]:
    """Drop the traces of days whose jobs all ended longer than `keep` ago, or are gone; None keeps those of any job.

    Returns the partitions that were dropped. One that is being read just now is left to the next time.
    """
    with transaction(engine) as connection:
        old: Sequence[str] = connection.execute(OLD_TRACES, {"keep": keep}).scalars().all()
    dropped = []
    for partition in old:
        try:
            with transaction(engine) as connection:
                connection.execute(PATIENCE)
                connection.execute(text(f"DROP TABLE {partition}"))
        except PASSING as error:
            log.warning("drop_postponed", partition=partition, error=type(error.orig).__name__)
        else:
            dropped.append(partition)
    return dropped


def forget_workers(engine: Engine) -> int:
    """Forget workers that have been gone for a month, and the starts of their runtimes that no job was heard by.

    Returns the number of workers.
    """
    with transaction(engine) as connection:
        connection.execute(FORGET_ANCHORS)
        connection.execute(FORGET_EPOCHS)
        return connection.execute(FORGET_WORKERS).rowcount
