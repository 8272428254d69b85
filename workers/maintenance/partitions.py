"""The partition maker: the days of the coming week have their partitions before anybody needs them."""

import asyncio

from sqlalchemy import Engine

from services.foundation.database import transaction
from services.jobs.partitions import ensure_coming_week


class PartitionMaker:
    """A chore."""

    interval = 3600.0

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run(self) -> None:
        """Make what is missing."""
        await asyncio.to_thread(self._make)

    def _make(self) -> None:
        with transaction(self._engine) as connection:
            ensure_coming_week(connection)
