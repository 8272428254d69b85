"""Workers that need no runtime: they claim chunks and write what a hearing would have made of them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from services.foundation.identifiers import new_id
from services.jobs.claim import Claim, claim
from services.jobs.lease import enrol
from services.jobs.record import Batch
from services.judging.opinion import Opinion
from services.vocabulary import ItemError, Order, Outcome, Winner
from tests.factories import MODEL


def a_worker(engine: Engine, model: str = MODEL, lease: float = 60.0) -> UUID:
    """A worker with a lease of so many seconds."""
    worker_id = new_id()
    enrol(engine, worker_id, model, "host", 1, 4, lease)
    return worker_id


def taken(engine: Engine, worker_id: UUID, model: str = MODEL) -> Claim:
    """The chunk that the worker gets."""
    held = claim(engine, worker_id, model)
    assert held is not None
    return held


def opinion(judge: str, says: Winner = Winner.A) -> Opinion:
    """What one call that says so comes to."""
    return Opinion(
        judge=judge,
        winner=says,
        p_a={Winner.A: 0.9, Winner.TIE: 0.5, Winner.B: 0.1}[says],
        consistent=None,
        error=None,
        votes={Order.AB: {says: 1}},
        vote_entropy=0.0,
        margin=None,
        ranking=None,
        stopped=None,
        standing=None,
        pairs=(),
        grades=None,
        first_slot=int(says is Winner.A),
        valid=1,
        invalid=0,
        forced=1,
        without_p=0,
        outcomes={Outcome.DECIDED: 1},
        flags=frozenset(),
        calls=1,
        prompt_tokens=10,
        cached_tokens=0,
        completion_tokens=1,
        latency_s=1.0,
    )


def opinion_of_both(
    judge: str, winner: Winner | None, votes: Mapping[Order, Mapping[Winner, int]], error: ItemError | None, **told: Any
) -> Opinion:
    """What one call in each order comes to; with an `error` neither gave an answer. `told` are other fields of it."""
    fields = {
        "p_a": None,
        "votes": {} if error else votes,
        "vote_entropy": None,
        "valid": 0 if error else 2,
        "invalid": 2 if error else 0,
        "forced": 0,
        "outcomes": {Outcome.TRUNCATED: 2} if error else {Outcome.DECIDED: 2},
        "calls": 2,
    }
    return replace(opinion(judge), winner=winner, error=error, **{**fields, **told})


def heard(held: Claim, seqs: Iterable[int], *, tokens: int = 10, says: Winner = Winner.A) -> Batch:
    """What hearing the given items in one order would write."""
    batch = Batch()
    for seq in seqs:
        batch.calls += 1
        batch.prompt_tokens += tokens
        batch.completion_tokens += 1
        reading = json.dumps({"winner": "A"})
        batch.traces.append(
            (
                *(held.day, held.job_id, seq, held.stage, held.model, 1),
                *("ab", [0, 1], 0, True, new_id(), "decided", reading),
                *(None, "0", '"A"', "stop", tokens, 0, 1, '{"A": -0.1, "B": -2.3}', "{}", None),
                *("2026-01-01 00:00+00", 1.0, None),
            )
        )
        batch.opinions.append((held.job_id, seq, held.model, json.dumps(opinion(held.model, says).as_json())))
        if held.settles:
            batch.verdicts.append((held.job_id, seq, "succeeded", "A", 0.9, *[None] * 6, 1, tokens, 0, 1))
    return batch
