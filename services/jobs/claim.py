"""Claiming: a worker takes the best chunk of its model at the last moment.

Guarantee: a chunk is held by one worker at a time; each claim raises its fence. Only chunks of the worker's own model
are seen. The best chunk is the first one of the job whose turn it is: `services/jobs/turns.py`. It is charged in the
claim's own transaction, so what is under way counts. What must run alone (`services/jobs/deaths.py`) is taken out of
turn, and only by a worker that hears nothing else.
"""

from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping, text

from services.foundation.database import transaction
from services.jobs.turns import CLAIMABLE, Place, charge, next_in_line
from services.vocabulary import Priority, Stage

_TAKE = """
    WITH first AS MATERIALIZED (
        SELECT job_id, stage, ordinal, part, model FROM chunk
        WHERE {which}
        ORDER BY {order} LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    UPDATE chunk SET state = 'running', claimed_by = :worker, claimed_at = now(), fence = chunk.fence + 1
    FROM first
    WHERE chunk.job_id = first.job_id AND chunk.stage = first.stage AND chunk.ordinal = first.ordinal
      AND chunk.part = first.part AND chunk.model = first.model
    RETURNING chunk.job_id, chunk.stage, chunk.ordinal, chunk.part, chunk.model, chunk.first_seq, chunk.end_seq,
              chunk.fence, chunk.flushes, chunk.priority, chunk.step, chunk.settles, chunk.alone, chunk.deaths,
              (chunk.end_seq - chunk.first_seq) * chunk.calls_per_item AS cost,
              (SELECT day FROM job WHERE id = chunk.job_id) AS day,
              (SELECT settings FROM job WHERE id = chunk.job_id) AS settings
"""
IN_TURN = CLAIMABLE.format(job_id=":job_id", priority=":priority")
TAKE = text(_TAKE.format(which=IN_TURN, order="ordinal, part"))

SUSPECT = "chunk.model = :model AND chunk.state = 'queued' AND chunk.alone"
TAKE_SUSPECT = text(_TAKE.format(which=SUSPECT, order="priority, job_id, ordinal, part"))
# Of workers that share a runtime one claims at a time.
SHARE = text("SELECT pg_advisory_xact_lock(hashtextextended('runtime of ' || :model, 0))")
OTHERS = text(
    """
    SELECT count(*) > 0 AS any, coalesce(bool_or(alone), false) AS alone FROM chunk
    WHERE model = :model AND state = 'running' AND claimed_by <> :worker
    """
)
ANY_SUSPECT = text(f"SELECT EXISTS (SELECT 1 FROM chunk WHERE {SUSPECT})")

START = text(
    """
    UPDATE job SET status = 'running', started_at = now(), version = version + 1
    WHERE id = :job_id AND status = 'queued'
    """
)


class ClaimKey(NamedTuple):
    """Names a claim: a chunk and the fence of this very claim of it."""

    job_id: UUID
    stage: str
    ordinal: int
    part: int
    model: str
    fence: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A chunk that this worker holds, until its lease lapses or the fence moves on."""

    worker_id: UUID
    job_id: UUID
    stage: Stage
    ordinal: int
    part: int
    model: str
    first_seq: int
    end_seq: int
    fence: int
    flushes: int
    priority: Priority
    day: date
    settings: str
    step: int
    settles: bool
    alone: bool
    deaths: int

    @property
    def claim_id(self) -> str:
        """Names this claim in one word."""
        return f"{self.job_id.hex}-{self.stage}-{self.ordinal}-{self.part}-{self.fence}"

    @property
    def claim_key(self) -> ClaimKey:
        """Names this claim, as the database does."""
        return ClaimKey(self.job_id, self.stage, self.ordinal, self.part, self.model, self.fence)

    @property
    def key(self) -> dict[str, Any]:
        """The bound values that name this chunk in SQL."""
        return {
            "job_id": self.job_id,
            "stage": self.stage,
            "ordinal": self.ordinal,
            "part": self.part,
            "model": self.model,
            "step": self.step,
        }


def claim(
    engine: Engine,
    worker_id: UUID,
    model: str,
    least: Priority = Priority.BULK,
    *,
    oldest: bool = False,
    suspects_first: bool = True,
    beside: bool = False,
    shared: bool = False,
) -> Claim | None:
    """Take the best queued chunk of `model` with at least the urgency `least`, or None when there is none.

    With `oldest` it is one of the oldest job, out of turn: whoever asks so now and then lets nothing starve.

    `suspects_first`: what must run alone comes before all else, if the worker hears nothing `beside` it; while it does,
    it gets nothing until it has done with that. Otherwise a suspect comes when there is nothing else. `shared`: the
    model's workers share one runtime, so that alone means alone among all of theirs.
    """
    with transaction(engine) as connection:
        if shared:
            connection.execute(SHARE, {"model": model})
            others = connection.execute(OTHERS, {"model": model, "worker": worker_id}).one()
            if others.alone:
                return None
            beside |= others.any
        held = _take_any(connection, worker_id, model, least, oldest, suspects_first, beside)
    if held is not None:
        with transaction(engine) as connection:
            connection.execute(START, {"job_id": held.job_id})
    return held


def _take_any(
    connection: Connection,
    worker_id: UUID,
    model: str,
    least: Priority,
    oldest: bool,
    suspects_first: bool,
    beside: bool,
) -> Claim | None:
    if not suspects_first:
        held = _take(connection, worker_id, model, least, oldest)
        return held if held or beside else _take_suspect(connection, worker_id, model)
    if beside:
        waits = connection.scalar(ANY_SUSPECT, {"model": model})
        return None if waits else _take(connection, worker_id, model, least, oldest)
    return _take_suspect(connection, worker_id, model) or _take(connection, worker_id, model, least, oldest)


def _take_suspect(connection: Connection, worker_id: UUID, model: str) -> Claim | None:
    row = connection.execute(TAKE_SUSPECT, {"worker": worker_id, "model": model}).mappings().first()
    if row is None:
        return None
    held = _claimed(worker_id, row)
    charge(connection, model, Place(held.job_id, held.priority, 0, 0), row["cost"], in_turn=False)
    return held


def _take(connection: Connection, worker_id: UUID, model: str, least: Priority, oldest: bool) -> Claim | None:
    passed_over: list[UUID] = []
    while place := next_in_line(connection, model, least, passed_over, oldest=oldest):
        key = {"worker": worker_id, "model": model, "job_id": place.job_id, "priority": int(place.priority)}
        if row := connection.execute(TAKE, key).mappings().first():
            charge(connection, model, place, row["cost"], in_turn=not oldest)
            return _claimed(worker_id, row)
        passed_over.append(place.job_id)  # others are at all that it has just now
    return None


def _claimed(worker_id: UUID, row: RowMapping) -> Claim:
    taken = {name: value for name, value in row.items() if name != "cost"}
    return Claim(worker_id=worker_id, **{**taken, "stage": Stage(row["stage"]), "priority": Priority(row["priority"])})
