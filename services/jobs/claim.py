"""Claiming: a worker takes the best chunk of its model at the last moment.

Guarantee: a chunk is held by one worker at a time; each claim raises its fence. Only chunks of the worker's own model
are seen. The best chunk is the first one of the job whose turn it is: `services/jobs/turns.py`. It is charged in the
claim's own transaction, so what is under way counts.
"""

from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from services.foundation.database import transaction
from services.jobs.turns import CLAIMABLE, charge, next_in_line
from services.vocabulary import Priority, Stage

TAKE = text(
    f"""
    WITH first AS MATERIALIZED (
        SELECT job_id, stage, ordinal, part, model FROM chunk
        WHERE {CLAIMABLE.format(job_id=":job_id", priority=":priority")}
        ORDER BY ordinal, part LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    UPDATE chunk SET state = 'running', claimed_by = :worker, claimed_at = now(), fence = chunk.fence + 1
    FROM first
    WHERE chunk.job_id = first.job_id AND chunk.stage = first.stage AND chunk.ordinal = first.ordinal
      AND chunk.part = first.part AND chunk.model = first.model
    RETURNING chunk.job_id, chunk.stage, chunk.ordinal, chunk.part, chunk.model, chunk.first_seq, chunk.end_seq,
              chunk.fence, chunk.flushes, chunk.priority, chunk.step, chunk.settles,
              (chunk.end_seq - chunk.first_seq) * chunk.calls_per_item AS cost,
              (SELECT day FROM job WHERE id = chunk.job_id) AS day,
              (SELECT settings FROM job WHERE id = chunk.job_id) AS settings
    """
)

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
    engine: Engine, worker_id: UUID, model: str, least: Priority = Priority.BULK, *, oldest: bool = False
) -> Claim | None:
    """Take the best queued chunk of `model` with at least the urgency `least`, or None when there is none.

    With `oldest` it is one of the oldest job, out of turn: whoever asks so now and then lets nothing starve.
    """
    with transaction(engine) as connection:
        held = _take(connection, worker_id, model, least, oldest)
    if held is not None:
        with transaction(engine) as connection:
            connection.execute(START, {"job_id": held.job_id})
    return held


def _take(connection: Connection, worker_id: UUID, model: str, least: Priority, oldest: bool) -> Claim | None:
    passed_over: list[UUID] = []
    while place := next_in_line(connection, model, least, passed_over, oldest=oldest):
        key = {"worker": worker_id, "model": model, "job_id": place.job_id, "priority": int(place.priority)}
        if row := connection.execute(TAKE, key).mappings().first():
            taken = {**row, "stage": Stage(row["stage"]), "priority": place.priority}
            charge(connection, model, place, taken.pop("cost"), in_turn=not oldest)
            return Claim(worker_id=worker_id, **taken)
        passed_over.append(place.job_id)  # others are at all that it has just now
    return None
