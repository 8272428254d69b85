"""A chunk's thread and its carrier: however answers arrive, every call is sent once and every answer counts once."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from queue import SimpleQueue

import pytest
from sqlalchemy import Engine, text

from embedded import models
from services.foundation.database import transaction
from services.foundation.fleet import FleetModel
from services.foundation.identifiers import new_id
from services.jobs.answer import Answer
from services.jobs.execute import Session, hear_chunk
from services.jobs.measure import Anchors
from services.judging.judge import Judge
from services.judging.runtime import Call, CallRefused, Completion
from services.vocabulary import FinishReason, Priority
from tests.factories import MODEL, comparisons, make_tenant, queue_job
from tests.hearings import a_worker, taken
from tests.invariants import check_ended_job
from workers.runtime.tokenizer import load_tokenizer, vocabulary_size


@pytest.fixture(scope="module")
def judge() -> Judge:
    """An sdrm judge."""
    weights = str(models.make("scripted"))
    tokenizer = load_tokenizer(weights)
    model = FleetModel(name=MODEL, protocol="sdrm", weights=weights, context_length=8192)
    return Judge.of(model, tokenizer, vocabulary_size(tokenizer, weights))


class Everything:
    """A carrier that holds all answers back until a chunk has sent what it can, then gives them at once."""

    def __init__(self, *, refuse: bool = False) -> None:
        self.sent: list[str] = []
        self._refuse = refuse

    def send(self, chunk: Hashable, priority: Priority, calls: Sequence[Call], answers: SimpleQueue[Answer]) -> None:
        """Answer all calls of one send in one go."""
        for call in calls:
            self.sent.append(call.rid)
            came: Completion | CallRefused = self._completion(call)
            if self._refuse:
                came = CallRefused("too long")
            answers.put(Answer(call.rid, came, datetime.now(UTC), 0.1))

    def _completion(self, call: Call) -> Completion:
        if call.labels:
            logprobs = tuple((label.name, math.log(0.5 + index / 10)) for index, label in enumerate(call.labels))
            return Completion("", FinishReason.LENGTH, 10, 5, 1, logprobs)
        return Completion("<verdict>A</verdict>", FinishReason.STOP, 10, 5, 7)

    def hang_up(self, chunk: Hashable) -> None:
        """Nothing is under way."""


def hear(engine: Engine, judge: Judge, carrier: Everything, interrupted: Callable[[], bool] = lambda: False) -> None:
    held = taken(engine, a_worker(engine))
    session = Session(
        engine=engine,
        held=held,
        judge=judge,
        epoch_id=(epoch_id := new_id()),
        anchors=Anchors(engine, epoch_id),
        carrier=carrier,
        interrupted=interrupted,
        public_url="http://assizes.test",
        keep_prompts=True,
    )
    assert hear_chunk(session) is None


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({"mode": "reason", "decide": "soft"}, 4),  # both orders' follow-ups are opened by answers that come together
        ({"mode": "reason", "samples": 3}, 4),  # whoever always takes the first slot is known to tie after two each
        ({"mode": "direct"}, 2),
    ],
)
def test_answers_that_come_together_open_each_call_once(
    engine: Engine, judge: Judge, options: dict[str, object], calls: int
) -> None:
    job_id = queue_job(engine, make_tenant(engine), 8, options=options)
    carrier = Everything()
    hear(engine, judge, carrier)
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["succeeded"], job["calls"]) == ("completed", 8, 8 * calls)
    assert set(Counter(carrier.sent).values()) == {1}


def test_refused_samples_are_all_asked_and_the_item_fails_for_them(engine: Engine, judge: Judge) -> None:
    job_id = queue_job(engine, make_tenant(engine), 2, options={"mode": "reason", "samples": 2})
    carrier = Everything(refuse=True)
    hear(engine, judge, carrier)
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["failed"], job["calls"]) == ("failed", 2, 8)
    assert set(Counter(carrier.sent).values()) == {1}


def test_calls_that_do_not_fit_open_the_next_ones_until_none_is_left(engine: Engine, judge: Judge) -> None:
    job_id = queue_job(engine, make_tenant(engine), 2, options={"mode": "reason", "samples": 2})
    carrier = Everything()
    hear(engine, judge.within(64), carrier)
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["calls"], carrier.sent) == ("failed", 0, [])


def long(items: int) -> list[dict[str, object]]:
    """Items so long that each of their calls is a portion of its own."""
    return [item | {"candidates": [{"content": "x " * 300_000}, {"content": "y"}]} for item in comparisons(items)]


def test_an_interrupt_is_seen_between_portions_and_the_rest_is_handed_back(engine: Engine, judge: Judge) -> None:
    job_id = queue_job(engine, make_tenant(engine), long(3), options={"mode": "direct"})
    looks = iter([False, False, False])
    hear(engine, judge, Everything(), interrupted=lambda: next(looks, True))
    with transaction(engine) as connection:
        chunk = connection.execute(text("SELECT state, deaths FROM chunk")).one()
        heard = connection.scalar(text("SELECT count(*) FROM trace"))
    assert (tuple(chunk), heard) == (("queued", 0), 2)
    hear(engine, judge, Everything())
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["failed"], job["calls"]) == ("failed", 3, 0)
