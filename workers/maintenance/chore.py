"""Chores: what the maintenance process does again and again.

Guarantee: a chore that fails is tried again after its interval, and its failure is logged; it never stops another.
"""

import asyncio
import contextlib
from typing import Protocol

import structlog

log = structlog.get_logger()


class Chore(Protocol):
    """One kind of recurring work. Several processes may do the same chore at once: its SQL takes care of that."""

    @property
    def interval(self) -> float:
        """Seconds between the end of one run and the start of the next."""

    async def run(self) -> None:
        """Do what there is to do now. Blocking work goes to a thread."""


async def repeat(chore: Chore, stopping: asyncio.Event) -> None:
    """Run `chore` again and again until `stopping` is set."""
    while not stopping.is_set():
        try:
            await chore.run()
        except Exception:
            log.exception("chore_failed", chore=type(chore).__name__)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), chore.interval)
