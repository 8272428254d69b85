"""The pruner: jobs, traces and workers that are older than they are kept."""

import asyncio
from datetime import timedelta

import structlog
from sqlalchemy import Engine

from services.jobs.prune import delete_old_jobs, drop_old_traces, forget_workers

log = structlog.get_logger(__name__)


class Pruner:
    """A chore. `keep_jobs` and `keep_traces` are days after a job's end; None: for ever."""

    interval = 3600.0

    def __init__(self, engine: Engine, keep_jobs: int | None, keep_traces: int | None) -> None:
        self._engine = engine
        self._keep_jobs = _days(keep_jobs)
        self._keep_traces = _days(keep_traces)

    async def run(self) -> None:
        """Prune what is due."""
        await asyncio.to_thread(self._prune)

    def _prune(self) -> None:
        if self._keep_jobs is not None and (deleted := delete_old_jobs(self._engine, self._keep_jobs)):
            log.info("old_jobs_deleted", jobs=deleted)
        if dropped := drop_old_traces(self._engine, self._keep_traces):
            log.info("old_traces_dropped", partitions=dropped)
        if forgotten := forget_workers(self._engine):
            log.info("old_workers_forgotten", workers=forgotten)


def _days(number: int | None) -> timedelta | None:
    return None if number is None else timedelta(days=number)
