"""A chore goes on until it is stopped, whatever befalls one run."""

import asyncio
import time

from workers.maintenance.chore import repeat
from workers.maintenance.metrics import MaintenanceMetrics


class Counting:
    """Counts its runs, fails in some of them, and stops after the third."""

    interval = 0.0

    def __init__(self, stopping: asyncio.Event) -> None:
        self.runs = 0
        self._stopping = stopping

    async def run(self) -> None:
        self.runs += 1
        if self.runs == 3:
            self._stopping.set()
        if self.runs < 3:
            raise ValueError("the database is away")


def test_a_failed_run_is_followed_by_the_next() -> None:
    async def repeated() -> int:
        chore = Counting(stopping := asyncio.Event())
        await asyncio.wait_for(repeat(chore, stopping, MaintenanceMetrics()), 60)
        return chore.runs

    assert asyncio.run(repeated()) == 3


def test_a_chore_is_seen_before_its_first_run_has_ended() -> None:
    stopping, metrics = asyncio.Event(), MaintenanceMetrics()
    seen: list[float | None] = []

    class Hanging:
        interval = 1.0

        async def run(self) -> None:
            stopping.set()
            for name in ("last_success_timestamp_seconds", "failures_total", "seconds_count"):
                seen.append(metrics.registry.get_sample_value(f"assizes_chore_{name}", {"chore": "Hanging"}))

    began = time.time()
    asyncio.run(repeat(Hanging(), stopping, metrics))
    since, failures, runs = seen
    assert since is not None
    assert began <= since <= time.time()
    assert (failures, runs) == (0, 0)


def test_stopping_does_not_wait_for_the_next_run() -> None:
    class Rare:
        interval = 3600.0

        async def run(self) -> None:
            asyncio.get_running_loop().call_soon(stopping.set)

    async def repeated() -> None:
        await asyncio.wait_for(repeat(Rare(), stopping, MaintenanceMetrics()), 60)

    stopping = asyncio.Event()
    asyncio.run(repeated())
