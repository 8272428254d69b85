"""The rescuer: chunks of silent workers become claimable again, jobs past their deadline end."""

import asyncio

import structlog
from sqlalchemy import Engine

from services.jobs.rescue import expire_overdue, rescue_lapsed
from workers.maintenance.metrics import MaintenanceMetrics

log = structlog.get_logger(__name__)


class Rescuer:
    """A chore."""

    interval = 1.0

    def __init__(self, engine: Engine, public_url: str, metrics: MaintenanceMetrics) -> None:
        self._engine = engine
        self._public_url = public_url
        self._metrics = metrics

    async def run(self) -> None:
        """One look at the leases and the deadlines."""
        await asyncio.to_thread(self._look)

    def _look(self) -> None:
        if rescued := rescue_lapsed(self._engine, self._public_url):
            log.warning("chunks_rescued", chunks=len(rescued), models=sorted(set(rescued)))
            self._metrics.rescued(rescued)
        if expired := expire_overdue(self._engine, self._public_url):
            log.info("jobs_expired", jobs=expired)
            self._metrics.expired(expired)
