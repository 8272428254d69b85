"""The concluder: settles the chunks that need no runtime."""

import asyncio

from sqlalchemy import Engine

from services.foundation.fleet import Fleet
from services.jobs.join import join_next
from services.jobs.reread import reread_next

AT_ONCE = 200


class Concluder:
    """A chore. Two concluders at once do some work twice, and write it once."""

    interval = 0.25

    def __init__(self, engine: Engine, fleet: Fleet, public_url: str) -> None:
        self._engine = engine
        self._fleet = fleet
        self._public_url = public_url

    async def run(self) -> None:
        """Settle what is queued: at most `AT_ONCE` chunks, a second or two, so that a stop need not wait for more."""
        await asyncio.to_thread(self._settle)

    def _settle(self) -> None:
        for _ in range(AT_ONCE):
            joined = join_next(self._engine, self._public_url)
            if not reread_next(self._engine, self._fleet, self._public_url) and not joined:
                return
