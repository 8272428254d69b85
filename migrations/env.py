"""Alembic's environment: migrates the database that `ASSIZES_DATABASE_URL` (or its `_FILE`) names.

Guarantee: one transaction a run, and one run at a time. It may run beside parts that are at work: a run that does not
get a lock in time, or whose locks and theirs wait for each other, lets them go on and begins anew.
"""

import os
import time
from pathlib import Path

import structlog
from alembic import context
from psycopg.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlmodel import SQLModel

import services.models  # noqa: F401 - fills SQLModel.metadata

MIGRATION_LOCK = 0x617373697A6573  # so that two migrations at once run one after the other
LOCK_TIMEOUT = "5s"  # whoever waits for a table that this waits for waits as long
RUNS = 30
PAUSE = 1.0  # seconds between two runs

log = structlog.get_logger(__name__)


def database_url() -> str:
    """The URL given by the caller in `config.attributes`, else the environment's."""
    if url := context.config.attributes.get("url"):
        return str(url)
    if path := os.environ.get("ASSIZES_DATABASE_URL_FILE"):
        return Path(path).read_text(encoding="utf-8").strip()
    return os.environ["ASSIZES_DATABASE_URL"]


def include(name: str | None, kind: str, _parents: object) -> bool:
    """Autogenerate sees the tables, not the daily partitions of `trace`."""
    return not (kind == "table" and name is not None and name.startswith("trace_"))


def migrate() -> None:
    """One run. Raises OperationalError when it was held up by others' locks."""
    with create_engine(database_url(), poolclass=NullPool).connect() as connection:
        context.configure(
            connection=connection, target_metadata=SQLModel.metadata, include_name=include, compare_type=True
        )
        with context.begin_transaction():
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
            connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
            context.run_migrations()


for run in range(1, RUNS + 1):
    try:
        migrate()
        break
    except OperationalError as error:
        if run == RUNS or not isinstance(error.orig, DeadlockDetected | LockNotAvailable):
            raise
        log.warning("migration_held_up", run=run, error=type(error.orig).__name__)
        time.sleep(PAUSE)
