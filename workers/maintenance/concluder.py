"""The concluder: settles the chunks that need no runtime."""

import asyncio
import time

from sqlalchemy import Engine

from services.foundation.fleet import Fleet
from services.jobs.choose import choose_next
from services.jobs.conclude import conclude_next
from services.jobs.reread import reread_next
from services.vocabulary import Stage
from workers.maintenance.metrics import MaintenanceMetrics

AT_ONCE = 2.0  # seconds


class Concluder:
    """A chore. Two concluders at once do some work twice, and write it once."""

    interval = 0.25

    def __init__(self, engine: Engine, fleet: Fleet, public_url: str, metrics: MaintenanceMetrics) -> None:
        self._engine = engine
        self._fleet = fleet
        self._public_url = public_url
        self._metrics = metrics

    async def run(self) -> None:
        """Settle what is queued, for `AT_ONCE` seconds at most and the chunk begun by then: a stop waits no longer."""
        await asyncio.to_thread(self._settle)

    def _settle(self) -> None:
        until = time.monotonic() + AT_ONCE
        settled = True
        while settled and time.monotonic() < until:
            done = {
                Stage.CHOOSE: choose_next(self._engine, self._public_url),
                Stage.CONCLUDE: conclude_next(self._engine, self._public_url),
                Stage.REREAD: reread_next(self._engine, self._fleet, self._public_url),
            }
            settled = any(done.values())
            for stage, one in done.items():
                if one:
                    self._metrics.settled(stage)
