"""Claiming: a worker takes the best chunk of its model at the last moment.

Guarantee: a chunk is held by one worker at a time; each claim raises its fence. Only chunks of the worker's own model
are seen.
"""

from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.vocabulary import Priority, Stage

CLAIM = text(
    """
    WITH best AS MATERIALIZED (
        SELECT job_id, stage, ordinal, part, model FROM chunk
        WHERE model = :model AND state = 'queued' AND priority <= :least
        ORDER BY priority, job_id, ordinal, part
        LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    UPDATE chunk SET state = 'running', claimed_by = :worker, claimed_at = now(), fence = chunk.fence + 1
    FROM best
    WHERE chunk.job_id = best.job_id AND chunk.stage = best.stage AND chunk.ordinal = best.ordinal
      AND chunk.part = best.part AND chunk.model = best.model
    RETURNING chunk.job_id, chunk.stage, chunk.ordinal, chunk.part, chunk.model, chunk.first_seq, chunk.end_seq,
              chunk.fence, chunk.flushes, chunk.priority, chunk.step, chunk.settles,
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


def claim(engine: Engine, worker_id: UUID, model: str, least: Priority = Priority.BULK) -> Claim | None:
    """Take the best queued chunk of `model` with at least the urgency `least`, or None when there is none."""
    with transaction(engine) as connection:
        row = connection.execute(CLAIM, {"worker": worker_id, "model": model, "least": int(least)}).mappings().first()
    if row is None:
        return None
    with transaction(engine) as connection:
        connection.execute(START, {"job_id": row["job_id"]})
    return Claim(
        worker_id=worker_id,
        **{**row, "stage": Stage(row["stage"]), "priority": Priority(row["priority"])},
    )
