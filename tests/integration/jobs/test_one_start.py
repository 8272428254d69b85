"""Scores of a runtime that may be started anew unseen: they are written when it has not been, and dropped otherwise."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from embedded import models
from services.foundation.database import transaction
from services.foundation.fleet import FleetModel
from services.jobs.execute import hear_chunk
from services.judging.judge import Judge
from services.judging.runtime import Call, Completion, RuntimeFault, RuntimeUnavailable
from services.vocabulary import FinishReason
from tests.carriers import Everything, session
from tests.factories import make_tenant, queue_job
from tests.hearings import a_worker, taken
from tests.stages import FLEET, an_epoch
from workers.runtime.tokenizer import load_tokenizer, vocabulary_size

ITEMS = [
    {"custom_id": f"r{seq}", "context": [{"role": "user", "content": "Why?"}], "response": "So."} for seq in range(3)
]
ANEW = RuntimeUnavailable(RuntimeFault.FAILED, "the runtime was started anew")


class Scores(Everything):
    """A carrier to a reward model that gives every text the same score."""

    def _completion(self, call: Call) -> Completion:
        return Completion("[1.5]", FinishReason.STOP, 10, None, 0)


@pytest.fixture(scope="module")
def reward() -> Judge:
    weights = str(models.make("scripted"))
    tokenizer = load_tokenizer(weights)
    model = FleetModel(name="a", protocol="reward", weights=weights, context_length=8192)
    return Judge.of(model, tokenizer, vocabulary_size(tokenizer, weights))


@pytest.fixture
def job_id(engine: Engine) -> UUID:
    return queue_job(engine, make_tenant(engine), ITEMS, fleet=FLEET, kind="scoring", committee="anchored")


def confirming(*found: RuntimeUnavailable | None) -> Callable[[], None]:
    """Finds this, one after the other."""
    left: Iterator[RuntimeUnavailable | None] = iter(found)

    def confirm() -> None:
        if (away := next(left)) is not None:
            raise away

    return confirm


def hear(
    engine: Engine, judge: Judge, epoch_id: UUID | None, *found: RuntimeUnavailable | None
) -> RuntimeUnavailable | None:
    held = taken(engine, a_worker(engine, "a"), "a")
    return hear_chunk(session(engine, held, judge, Scores(), epoch_id=epoch_id, confirm=confirming(*found)))


def left(engine: Engine) -> dict[str, Any]:
    """What was written, and how the chunk stands."""
    with transaction(engine) as connection:
        tables = ("score", "trace", "anchor_scores")
        counts = {table: connection.scalar(text(f"SELECT count(*) FROM {table}")) for table in tables}
        chunk = connection.execute(text("SELECT state, deaths, calls FROM chunk WHERE model = 'a'")).mappings().one()
    return counts | dict(chunk)


def test_scores_of_another_start_are_dropped_and_the_chunk_is_handed_back(
    engine: Engine, reward: Judge, job_id: UUID
) -> None:
    epoch_id = an_epoch(engine, "a", job_id, [0.0, 1.0] * 20)
    assert hear(engine, reward, epoch_id, None, ANEW) is ANEW
    assert left(engine) == {"score": 0, "trace": 0, "anchor_scores": 1, "state": "queued", "deaths": 0, "calls": 0}
    assert hear(engine, reward, epoch_id, None, None) is None
    assert left(engine) == {"score": 3, "trace": 3, "anchor_scores": 1, "state": "finished", "deaths": 0, "calls": 3}


def test_anchors_of_another_start_are_not_stored_and_nothing_is_scored_by_them(
    engine: Engine, reward: Judge, job_id: UUID
) -> None:
    assert hear(engine, reward, None, ANEW) is ANEW
    assert left(engine) == {"score": 0, "trace": 0, "anchor_scores": 0, "state": "queued", "deaths": 0, "calls": 0}
