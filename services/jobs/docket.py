"""The docket: a claimed chunk's items as proceedings, with what was heard before replayed into them.

Guarantee: a chunk that is claimed again goes on exactly where its last flush left it. How a stage opens its items, and
what it writes down of each, is its brief: `hear.py`, `reappraise.py`, `score.py`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from sqlalchemy import Connection, RowMapping, text

from services.jobs.claim import Claim
from services.jobs.record import Batch
from services.judging.heard import NO_ANSWER, Heard, unanswered
from services.judging.judge import Judge
from services.judging.proceeding import CallKey, Proceeding
from services.judging.runtime import Completion, Sampling
from services.vocabulary import FinishReason, Outcome

HEARD = text(
    """
    SELECT seq, call, outcome, completion, finish_reason, prompt_tokens, cached_tokens, completion_tokens,
           label_logprobs, sent_at, latency_ms
    FROM trace
    WHERE day = :day AND job_id = :job_id AND seq >= :first_seq AND seq < :end_seq AND stage = :stage AND judge = :model
    """
)


P = TypeVar("P", bound=Proceeding)


@dataclass(slots=True)
class Case(Generic[P]):
    """One item under way. `closed`: what it came to has been written down.

    `held_back` are traces that are written with what the item came to, and not before.
    """

    seq: int
    proceeding: P
    closed: bool = False
    held_back: Batch = field(default_factory=Batch)


class Brief(Protocol):
    """What one stage makes of a claimed chunk."""

    @property
    def whole(self) -> bool:
        """Whether an item's calls are written down all at once, so that a new claim of its chunk asks it anew."""
        ...

    def sampling(self, settings: Mapping[str, Any], judge: Judge) -> Sampling:
        """How the model draws, by the job's settings."""
        ...

    def open(self, connection: Connection, held: Claim, settings: Mapping[str, Any], judge: Judge) -> list[Case[Any]]:
        """The chunk's open items, in their order, with what was heard of them."""
        ...

    def close(self, held: Claim, case: Case[Any], epoch_id: UUID, batch: Batch) -> None:
        """Add what an ended item came to."""
        ...


def places(held: Claim) -> dict[str, Any]:
    """The bound values that name a claimed chunk's items."""
    return {"job_id": held.job_id, "first_seq": held.first_seq, "end_seq": held.end_seq, "model": held.model}


def heard_before(connection: Connection, held: Claim) -> Sequence[RowMapping]:
    """The traces that were written of this chunk's items, in this stage and by this model."""
    return connection.execute(HEARD, {**places(held), "day": held.day, "stage": held.stage}).mappings().all()


def replay(cases: Iterable[Case[P]], heard: Iterable[RowMapping]) -> list[Case[P]]:
    """The cases, each with its stored calls taken in."""
    by_seq = {case.seq: case for case in cases}
    for row in sorted(heard, key=lambda row: CallKey.from_number(row["call"]).turn):
        if (case := by_seq.get(row["seq"])) is not None:
            key = CallKey.from_number(row["call"])
            if case.proceeding.is_open(key):  # else an older version asked it, and this one would not
                case.proceeding.record(key, replayed(case.proceeding, key, row))
    return list(by_seq.values())


def replayed(proceeding: Proceeding, key: CallKey, row: RowMapping) -> Heard:
    """A stored call, read by its proceeding: `row` is its trace."""
    outcome = Outcome(row["outcome"])
    if outcome in NO_ANSWER and row["completion"] is None:
        return unanswered(outcome, sent=row["sent_at"] is not None)
    return proceeding.read(
        key,
        Completion(
            text=json.loads(row["completion"]),
            finish_reason=FinishReason(row["finish_reason"]),
            prompt_tokens=row["prompt_tokens"],
            cached_tokens=row["cached_tokens"],
            completion_tokens=row["completion_tokens"],
            label_logprobs=tuple((row["label_logprobs"] or {}).items()),
            latency_s=None if row["latency_ms"] is None else row["latency_ms"] / 1000,
        ),
    )
