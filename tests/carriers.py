"""Carriers that need no runtime, and sessions over them."""

import math
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from queue import SimpleQueue
from uuid import UUID

from sqlalchemy import Engine

from services.foundation.identifiers import new_id
from services.jobs.answer import Answer
from services.jobs.claim import Claim
from services.jobs.execute import Session
from services.jobs.measure import Anchors
from services.judging.judge import Judge
from services.judging.runtime import Call, CallRefused, Completion
from services.vocabulary import FinishReason, Priority
from workers.metrics import WorkerMetrics


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


def session(
    engine: Engine,
    held: Claim,
    judge: Judge,
    carrier: Everything,
    interrupted: Callable[[], bool] = lambda: False,
    epoch_id: UUID | None = None,
    lease: float = 60.0,
    confirm: Callable[[], None] | None = None,
) -> Session:
    """A session over a claimed chunk, by default in an epoch of its own."""
    epoch_id = epoch_id or new_id()
    return Session(
        engine=engine,
        held=held,
        judge=judge,
        epoch_id=epoch_id,
        anchors=Anchors(engine, epoch_id),
        carrier=carrier,
        interrupted=interrupted,
        confirm=confirm,
        lease=lease,
        public_url="http://assizes.test",
        keep_prompts=True,
        meter=WorkerMetrics(held.model),
    )
