"""Deleting ended jobs: nobody's at once, and then removed bit by bit.

Guarantee: from the commit on a deleted job is not there for anybody, nothing of it is told any more and no other job
names it. What it leaves is removed in short transactions, table by table of all that name a job, and its own row last;
a crash at any point leaves the rest to whoever removes next.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine, Table, TextClause, text
from sqlmodel import SQLModel

import services.models  # noqa: F401 - fills SQLModel.metadata
from services.foundation.database import transaction
from services.foundation.errors import Conflict, NotFound
from services.jobs.states import ENDED

ITEMS_AT_ONCE = 500
ROWS_AT_ONCE = 10_000

# Jobs, and those that name them. Whoever deletes locks all at once and in one order: retries of retries are chains.
# One that is submitted meanwhile is too new to be locked by somebody who waits for these.
LOCK_LINKED = text(
    """
    SELECT 1 FROM job WHERE id = ANY(:jobs) OR reread_of = ANY(:jobs) OR retry_of = ANY(:jobs) ORDER BY id FOR UPDATE
    """
)
OWN = text("SELECT status FROM job WHERE id = :job_id AND tenant_id = :tenant_id AND deleted_at IS NULL")
MARK = text("UPDATE job SET deleted_at = now() WHERE id = ANY(:jobs)")
UNLINK = text(
    """
    UPDATE job SET version = version + 1,
        reread_of = CASE WHEN reread_of = ANY(:jobs) THEN NULL ELSE reread_of END,
        retry_of = CASE WHEN retry_of = ANY(:jobs) THEN NULL ELSE retry_of END
    WHERE reread_of = ANY(:jobs) OR retry_of = ANY(:jobs)
    """
)
FORGET_EVENTS = text("DELETE FROM event WHERE job_id = ANY(:jobs)")

# Whoever has begun to read the job may come to an end meanwhile.
NEXT = text(
    """
    SELECT id, day FROM job WHERE deleted_at < now() - interval '1 minute'
    ORDER BY deleted_at LIMIT 1 FOR UPDATE SKIP LOCKED
    """
)
# The first items that are left, and as many behind them as have so many traces: one item may have thousands.
RUN = text(
    """
    SELECT first, coalesce(
        (
            SELECT greatest(seq, first + 1) FROM trace
            WHERE day = :day AND job_id = :id AND seq >= first AND seq < first + :items
            ORDER BY seq OFFSET :rows LIMIT 1
        ),
        first + :items
    ) AS behind
    FROM (SELECT min(seq) AS first FROM item WHERE job_id = :id AND seq >= :behind) AS left_over
    WHERE first IS NOT NULL
    """
)
REMOVE_JOB = text("DELETE FROM job WHERE id = :id")


def _removal(table: Table) -> TextClause:
    """Removes what a table holds of a job: of the items from `first` to `behind`, or `rows` of the whole job."""
    if "seq" not in table.columns:
        some = f"SELECT ctid FROM {table.name} WHERE job_id = :id LIMIT :rows"
        return text(f"DELETE FROM {table.name} WHERE ctid = ANY(ARRAY({some}))")
    partition = "day = :day AND" if "day" in table.columns else ""
    return text(f"DELETE FROM {table.name} WHERE {partition} job_id = :id AND seq >= :first AND seq < :behind")


TABLES = [table for table in reversed(SQLModel.metadata.sorted_tables) if "job_id" in table.columns]
REMOVE_ITEMS = [_removal(table) for table in TABLES if "seq" in table.columns]
REMOVE_REST = [_removal(table) for table in TABLES if "seq" not in table.columns]


class Removed(NamedTuple):
    """How far a job has been removed: its items before `behind`."""

    job_id: UUID
    behind: int


def delete(connection: Connection, tenant_id: UUID, job_id: UUID) -> None:
    """Delete an ended job. Raises NotFound, also for another tenant's and a deleted one; Conflict while it is open.

    Deliveries of its events that are still on their way are withdrawn; an attempt under way is not called back.
    """
    lock_linked(connection, [job_id])
    status = connection.scalar(OWN, {"job_id": job_id, "tenant_id": tenant_id})
    if status is None:
        raise NotFound("there is no such job")
    if status not in ENDED:
        raise Conflict("the job has not ended yet: cancel it first")
    mark_deleted(connection, [job_id])


def lock_linked(connection: Connection, jobs: Sequence[UUID]) -> None:
    """Lock jobs and all that name them, until the transaction ends. Two who do so never deadlock."""
    connection.execute(LOCK_LINKED, {"jobs": list(jobs)})


def mark_deleted(connection: Connection, jobs: Sequence[UUID]) -> None:
    """Make ended jobs nobody's. The caller has locked them and all that name them."""
    bound = {"jobs": list(jobs)}
    for statement in (MARK, UNLINK, FORGET_EVENTS):
        connection.execute(statement, bound)


def remove_next(engine: Engine, last: Removed | None = None) -> Removed | None:
    """Remove some of what a deleted job has left, in one short transaction. None when nothing is left of any.

    `last` is what came of it the last time: so what is gone already is not searched through again.
    """
    with transaction(engine) as connection:
        job = connection.execute(NEXT).mappings().first()
        if job is None:
            return None
        behind = last.behind if last is not None and last.job_id == job["id"] else 0
        bound = {**job, "behind": behind, "items": ITEMS_AT_ONCE, "rows": ROWS_AT_ONCE}
        run = connection.execute(RUN, bound).mappings().first()
        if run is not None:
            for statement in REMOVE_ITEMS:
                connection.execute(statement, {**job, **run})
            return Removed(job["id"], run["behind"])
        removed = [connection.execute(statement, bound).rowcount for statement in REMOVE_REST]
        if max(removed) < ROWS_AT_ONCE:
            connection.execute(REMOVE_JOB, {"id": job["id"]})
        return Removed(job["id"], behind)
