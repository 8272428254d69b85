"""Chores: what the maintenance process does again and again.

Guarantee: a chore that fails is tried again after its interval, and its failure is logged; it never stops another.
"""

import asyncio
import contextlib
import time
from typing import Protocol

import structlog

from workers.maintenance.metrics import MaintenanceMetrics

log = structlog.get_logger(__name__)


class Chore(Protocol):
    """One kind of recurring work. Several processes may do the same chore at once: its SQL takes care of that."""

    @property
    def interval(self) -> float:
        """Seconds between the end of one run and the start of the next."""

    async def run(self) -> None:
        """Do what there is to do now. Blocking work goes to a thread."""


async def repeat(chore: Chore, stopping: asyncio.Event, metrics: MaintenanceMetrics) -> None:
    """Run `chore` again and again until `stopping` is set. Its name stands on every line that it writes."""
    name = type(chore).__name__
    structlog.contextvars.bind_contextvars(chore=name)  # a task's context is its own
    metrics.began(name)
    while not stopping.is_set():
        began = time.monotonic()
        try:
            await chore.run()
        except Exception:
            log.exception("chore_failed")
            metrics.failed(name, time.monotonic() - began)
        else:
            metrics.ran(name, time.monotonic() - began)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), chore.interval)
