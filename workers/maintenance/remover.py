"""The remover: takes away what deleted jobs have left."""

import asyncio
import time

from sqlalchemy import Engine

from services.jobs.delete import remove_next

AT_ONCE = 2.0  # seconds


class Remover:
    """A chore. Two removers at once work at different jobs."""

    interval = 1.0

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run(self) -> None:
        """Remove for `AT_ONCE` seconds at most and the transaction begun by then: a stop waits no longer."""
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        until = time.monotonic() + AT_ONCE
        removed = remove_next(self._engine)
        while removed is not None and time.monotonic() < until:
            removed = remove_next(self._engine, removed)
