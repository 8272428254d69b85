"""Deleting ended jobs: nobody's at once, and then removed bit by bit.

Guarantee: from the commit on a deleted job is not there for anybody, nothing of it is told any more and no other job
names it. What it leaves is removed in short transactions, table by table of all that name a job, and its own row last;
a crash at any point leaves the rest to whoever removes next.
"""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, Engine, Table, TextClause, text
from sqlmodel import SQLModel

import services.models  # noqa: F401 - fills SQLModel.metadata
from services.foundation.database import transaction
from services.foundation.errors import Conflict, NotFound
from services.jobs.states import ENDED

ITEMS_AT_ONCE = 500
ROWS_AT_ONCE = 10_000

OWN = text("SELECT status FROM job WHERE id = :job_id AND tenant_id = :tenant_id AND deleted_at IS NULL FOR UPDATE")
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
FIRST_ITEM = text("SELECT min(seq) FROM item WHERE job_id = :id")
REMOVE_JOB = text("DELETE FROM job WHERE id = :id")


def _removal(table: Table) -> TextClause:
    """Removes what a table holds of a job: of the items from `first` on, or of the whole job; not all at once."""
    if "seq" not in table.columns:
        some = f"SELECT ctid FROM {table.name} WHERE job_id = :id LIMIT {ROWS_AT_ONCE}"
        return text(f"DELETE FROM {table.name} WHERE ctid = ANY(ARRAY({some}))")
    partition = "day = :day AND" if "day" in table.columns else ""
    run = f"seq >= :first AND seq < :first + {ITEMS_AT_ONCE}"
    return text(f"DELETE FROM {table.name} WHERE {partition} job_id = :id AND {run}")


TABLES = [table for table in reversed(SQLModel.metadata.sorted_tables) if "job_id" in table.columns]
REMOVE_ITEMS = [_removal(table) for table in TABLES if "seq" in table.columns]
REMOVE_REST = [_removal(table) for table in TABLES if "seq" not in table.columns]


def delete(connection: Connection, tenant_id: UUID, job_id: UUID) -> None:
    """Delete an ended job. Raises NotFound, also for another tenant's and a deleted one; Conflict while it is open.

    Deliveries of its events that are still on their way are withdrawn; an attempt under way is not called back.
    """
    status = connection.scalar(OWN, {"job_id": job_id, "tenant_id": tenant_id})
    if status is None:
        raise NotFound("there is no such job")
    if status not in ENDED:
        raise Conflict("the job has not ended yet: cancel it first")
    mark_deleted(connection, [job_id])


def mark_deleted(connection: Connection, jobs: Sequence[UUID]) -> None:
    """Make ended jobs, whose rows the caller has locked, nobody's."""
    bound = {"jobs": list(jobs)}
    for statement in (MARK, UNLINK, FORGET_EVENTS):
        connection.execute(statement, bound)


def remove_next(engine: Engine) -> bool:
    """Remove some of what a deleted job has left, in one short transaction. False when nothing is left of any."""
    with transaction(engine) as connection:
        job = connection.execute(NEXT).mappings().first()
        if job is None:
            return False
        first = connection.scalar(FIRST_ITEM, {"id": job["id"]})
        if first is not None:
            for statement in REMOVE_ITEMS:
                connection.execute(statement, {**job, "first": first})
            return True
        removed = [connection.execute(statement, {"id": job["id"]}).rowcount for statement in REMOVE_REST]
        if max(removed) < ROWS_AT_ONCE:
            connection.execute(REMOVE_JOB, {"id": job["id"]})
    return True
