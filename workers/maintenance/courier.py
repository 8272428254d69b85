"""The courier: carries webhooks from the delivery table to their receivers.

Guarantee: every pending delivery that is due is attempted, here or by another courier, again after a crash too. A
receiver that is slow holds only as many attempts as its host may have; the others go past it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import structlog
from aiohttp import ClientSession
from sqlalchemy import Engine

from services.foundation.database import transaction
from services.foundation.identifiers import shown
from services.webhooks import queries
from services.webhooks.deliver import DEADLINE, Attempt, Parcel, deliver
from services.webhooks.schedule import Standing, standing
from workers.maintenance.metrics import MaintenanceMetrics

EVENTS_AT_ONCE = 200
MARKING = 15.0  # seconds after its deadline in which an attempt must be marked, or it is taken for lost

log = structlog.get_logger(__name__)


class Courier:
    """A chore, and a context whose end waits for the attempts under way.

    `session` is `services.webhooks.guard.guarded_session`. At most `at_once` attempts are under way, `per_host` of them
    to one host; each has `deadline` seconds.
    """

    interval = 1.0

    def __init__(
        self,
        engine: Engine,
        session: ClientSession,
        metrics: MaintenanceMetrics,
        *,
        at_once: int = 128,
        per_host: int = 16,
        deadline: float = DEADLINE,
    ) -> None:
        self._engine = engine
        self._session = session
        self._metrics = metrics
        self._at_once = at_once
        self._per_host = per_host
        self._deadline = deadline
        self._under_way: dict[asyncio.Task[None], str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way)
        self._reap()

    async def run(self) -> None:
        """Fan events out and start what is due. Attempts end in the background; what one raised is raised here."""
        while await asyncio.to_thread(self._fan_out) == EVENTS_AT_ONCE:
            pass
        running = Counter(host for task, host in self._under_way.items() if not task.done())
        for parcel in await asyncio.to_thread(self._claim, running):
            self._under_way[asyncio.create_task(self._carry(parcel))] = parcel.host
        self._reap()

    def _reap(self) -> None:
        ended = [task for task in self._under_way if task.done()]
        for task in ended:
            del self._under_way[task]
        failures = [failure for task in ended if isinstance(failure := task.exception(), Exception)]
        if failures:
            raise ExceptionGroup("webhook attempts that could not be marked", failures)

    def _fan_out(self) -> int:
        with transaction(self._engine) as connection:
            return queries.fan_out(connection, EVENTS_AT_ONCE)

    def _claim(self, running: Mapping[str, int]) -> list[Parcel]:
        free = self._at_once - sum(running.values())
        with transaction(self._engine) as connection:
            return queries.claim(connection, free, self._per_host, running, self._deadline + MARKING)

    async def _carry(self, parcel: Parcel) -> None:
        structlog.contextvars.bind_contextvars(job=shown("job", parcel.job_id), delivery=shown("msg", parcel.id))
        attempt = await deliver(self._session, parcel, self._deadline)
        self._metrics.attempted(attempt.status, attempt.latency_ms / 1000)
        jitter = random.random()  # noqa: S311 - it spreads load and guards nothing
        then = standing(attempt.status, attempt.retry_after, parcel.number, jitter)
        await asyncio.to_thread(self._record, parcel, attempt, then)
        log.info("webhook_attempted", number=parcel.number, status=attempt.status, state=then.state)

    def _record(self, parcel: Parcel, attempt: Attempt, then: Standing) -> None:
        with transaction(self._engine) as connection:
            queries.record(connection, parcel, attempt, then)
