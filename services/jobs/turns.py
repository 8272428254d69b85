"""Whose turn it is: start-time fair queueing of each model's calls, among tenants and among the jobs of each.

Guarantee: of tenants that always have something queued in one priority class, none is served more than another by more
than one chunk's calls, and so of the jobs of a tenant. What a newcomer or an idle one did not use it cannot save up: it
starts where those stand that are being served.

A tag counts calls. Next is the one with the lowest start tag: what it has been served, or, if it was idle, the highest
start tag that one of its rivals was served at, whichever is more (Goyal, Vin and Cheng, "Start-time Fair Queuing",
SIGCOMM 1996). The classes are apart: one is served before the next, and what a tenant got in one it owes in no other.

Lock order: job, then chunks, then turn, then share.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, text

from services.foundation.fleet import CPU
from services.vocabulary import Priority

LINE_UP = text(
    f"""
    INSERT INTO turn (model, job_id, priority, tenant_id)
    SELECT DISTINCT chunk.model, job.id, job.priority, job.tenant_id
    FROM chunk JOIN job ON job.id = chunk.job_id
    WHERE chunk.job_id = :job_id AND chunk.model <> '{CPU}'
    """
)

# What of a job's chunks on a model may be taken in turn.
CLAIMABLE = (
    "chunk.job_id = {job_id} AND chunk.model = :model AND chunk.priority = {priority} AND chunk.state = 'queued'"
    " AND NOT chunk.alone"
)

# A small number's parameter is a smallint, and so would be what is added up of them.
_NUMBER = "cast(:{} AS bigint)".format
_JOB, _TENANT, _CALLS = _NUMBER("job_start"), _NUMBER("tenant_start"), _NUMBER("calls")

# The jobs in line are probed in order, no further than the first with a claimable chunk: the line is materialized as it
# is sorted, and a scalar subquery is never made a join, which would reorder it and read every queued chunk. The order
# within it is that of an index: else the planner may read the table instead, up to the first queued chunk.
_NEXT = """
    WITH line AS MATERIALIZED (
        SELECT turn.job_id, turn.priority,
               greatest(share.served, max(share.start_tag) OVER class, 0) AS tenant_start,
               greatest(turn.served, max(turn.start_tag) OVER tenant) AS job_start
        FROM turn LEFT JOIN share USING (model, priority, tenant_id)
        WHERE turn.model = :model AND turn.priority <= :least AND turn.job_id <> ALL (cast(:passed_over AS uuid[]))
        WINDOW class AS (PARTITION BY turn.priority), tenant AS (PARTITION BY turn.priority, turn.tenant_id)
        ORDER BY {order}
    )
    SELECT job_id, priority, tenant_start, job_start FROM line
    WHERE (SELECT true FROM chunk WHERE {claimable} ORDER BY chunk.ordinal, chunk.part LIMIT 1)
    LIMIT 1
"""
_OF_THE_LINE = CLAIMABLE.format(job_id="line.job_id", priority="line.priority")
NEXT = text(_NEXT.format(order="priority, tenant_start, job_start, job_id", claimable=_OF_THE_LINE))
OLDEST = text(_NEXT.format(order="job_id", claimable=_OF_THE_LINE))

CHARGE = text(
    f"""
    WITH charged AS (
        UPDATE turn SET served = greatest(served, {_JOB}) + {_CALLS},
            start_tag = CASE WHEN :in_turn THEN greatest(start_tag, {_JOB}) ELSE start_tag END
        WHERE model = :model AND job_id = :job_id
        RETURNING model, priority, tenant_id
    )
    INSERT INTO share AS mine (model, priority, tenant_id, served, start_tag)
    SELECT model, priority, tenant_id, {_TENANT} + {_CALLS}, CASE WHEN :in_turn THEN {_TENANT} ELSE 0 END FROM charged
    ON CONFLICT (model, priority, tenant_id) DO UPDATE SET
        served = greatest(mine.served, {_TENANT}) + {_CALLS}, start_tag = greatest(mine.start_tag, excluded.start_tag)
    """
)

# A share goes with its tenant's last turn. Of two that go at once one waits here, and finds the other's turn gone.
LEAVE = text(
    """
    WITH gone AS (DELETE FROM turn WHERE job_id = :job_id RETURNING model, priority, tenant_id)
    SELECT share.model, share.priority, share.tenant_id FROM share JOIN gone USING (model, priority, tenant_id)
    ORDER BY share.model FOR UPDATE OF share
    """
)
FORGET_SHARE = text(
    """
    DELETE FROM share WHERE model = :model AND priority = :priority AND tenant_id = :tenant_id AND NOT EXISTS (
        SELECT 1 FROM turn
        WHERE turn.model = share.model AND turn.priority = share.priority AND turn.tenant_id = share.tenant_id
    )
    """
)


class Place(NamedTuple):
    """The place of a job in the line before a model, with the start tags of its tenant and its own."""

    job_id: UUID
    priority: Priority
    tenant_start: int
    job_start: int


def line_up(connection: Connection, job_id: UUID) -> None:
    """Put a new job, whose chunks are stored, in line at each model that it needs."""
    connection.execute(LINE_UP, {"job_id": job_id})


def next_in_line(
    connection: Connection, model: str, least: Priority, passed_over: Sequence[UUID], *, oldest: bool
) -> Place | None:
    """The job whose turn it is of those with at least the urgency `least` and something queued; None: there is none.

    With `oldest` it is the oldest one, whoever's turn it is.
    """
    bound = {"model": model, "least": int(least), "passed_over": list(passed_over)}
    row = connection.execute(OLDEST if oldest else NEXT, bound).first()
    return None if row is None else Place(row.job_id, Priority(row.priority), row.tenant_start, row.job_start)


def charge(connection: Connection, model: str, place: Place, calls: int, *, in_turn: bool) -> None:
    """Count calls as served to a job and its tenant. Out of turn they count, but put no one who is idle forward.

    The caller holds the lock of a chunk of the job.
    """
    connection.execute(CHARGE, {**place._asdict(), "model": model, "calls": calls, "in_turn": in_turn})


def step_down(connection: Connection, job_id: UUID) -> None:
    """Take a job that ends out of all lines. The caller holds its lock."""
    for share in connection.execute(LEAVE, {"job_id": job_id}).mappings().all():
        connection.execute(FORGET_SHARE, dict(share))
