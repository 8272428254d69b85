"""The rescuer: chunks of silent workers become claimable again, jobs past their deadline end."""

import asyncio

import structlog
from sqlalchemy import Engine

from services.jobs.rescue import expire_overdue, rescue_lapsed

log = structlog.get_logger(__name__)


class Rescuer:
    """A chore."""

    interval = 1.0

    def __init__(self, engine: Engine, public_url: str) -> None:
        self._engine = engine
        self._public_url = public_url

    async def run(self) -> None:
        """One look at the leases and the deadlines."""
        await asyncio.to_thread(self._look)

    def _look(self) -> None:
        if rescued := rescue_lapsed(self._engine, self._public_url):
            log.warning("chunks_rescued", chunks=len(rescued), models=sorted(set(rescued)))
        if expired := expire_overdue(self._engine, self._public_url):
            log.info("jobs_expired", jobs=expired)
