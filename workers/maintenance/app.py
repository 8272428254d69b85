"""The composition root of the maintenance worker.

Guarantee: on SIGTERM or SIGINT every chore ends its present run, webhook attempts under way included, and the process
exits.
"""

import asyncio
import signal

import structlog

from services.foundation.database import make_engine
from services.foundation.fleet import load_fleet
from services.foundation.metrics import exposed
from services.foundation.settings import Settings
from services.foundation.version import VERSION
from services.jobs.dispatch import Bell
from services.webhooks.guard import allowed_networks, guarded_session
from workers.maintenance.bell_ringer import BellRinger
from workers.maintenance.chore import Chore, repeat
from workers.maintenance.concluder import Concluder
from workers.maintenance.courier import Courier
from workers.maintenance.metrics import MaintenanceMetrics
from workers.maintenance.partitions import PartitionMaker
from workers.maintenance.pruner import Pruner
from workers.maintenance.remover import Remover
from workers.maintenance.rescuer import Rescuer

log = structlog.get_logger(__name__)

AGENT = f"Assizes/{VERSION}"


async def keep_house(settings: Settings) -> None:
    """Do all chores until the process is told to stop."""
    engine = make_engine(settings.database_url, "assizes-maintenance")
    bell = Bell(settings.redis_url)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    fleet = load_fleet(settings.fleet)
    metrics = MaintenanceMetrics()
    try:
        with exposed(metrics.registry, settings):
            async with (
                guarded_session(allowed_networks(settings.webhook_allow), AGENT) as session,
                Courier(engine, session, metrics) as courier,
            ):
                chores: list[Chore] = [
                    PartitionMaker(engine),
                    Rescuer(engine, settings.public_url, metrics),
                    Concluder(engine, fleet, settings.public_url, metrics),
                    BellRinger(engine, bell, list(fleet.models), metrics),
                    courier,
                    Remover(engine),
                    Pruner(engine, settings.keep_jobs, settings.keep_traces),
                ]
                log.info("maintenance_started", chores=[type(chore).__name__ for chore in chores])
                await asyncio.gather(*(repeat(chore, stopping, metrics) for chore in chores))
    finally:
        bell.close()
        engine.dispose()
