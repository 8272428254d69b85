"""The bell ringer: keeps a bell waiting for every slot that could be hearing.

Guarantee: whatever became of earlier bells, about a second after a chunk is queued somebody is told of it.
"""

import asyncio
from collections.abc import Sequence

from sqlalchemy import Engine

from services.foundation.database import transaction
from services.jobs.dispatch import Bell, wanted_bells
from workers.maintenance.metrics import MaintenanceMetrics


class BellRinger:
    """A chore. Two ringers at once ring a few bells too many, which costs nothing: a bell too many finds no chunk."""

    interval = 1.0

    def __init__(self, engine: Engine, bell: Bell, models: Sequence[str], metrics: MaintenanceMetrics) -> None:
        self._engine = engine
        self._bell = bell
        self._models = list(models)
        self._metrics = metrics

    async def run(self) -> None:
        """Count in PostgreSQL, then ring over the broker, outside of any transaction."""
        await asyncio.to_thread(self._ring)

    def _ring(self) -> None:
        with transaction(self._engine) as connection:
            wanted = wanted_bells(connection, self._models)
        for model, bells in self._bell.top_up(wanted).items():
            self._metrics.rang(model, bells)
