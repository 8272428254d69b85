"""Alembic's environment: migrates the database that `ASSIZES_DATABASE_URL` (or its `_FILE`) names.

Guarantee: one transaction a run, and one run at a time.
"""

import os
from pathlib import Path

from alembic import context
from sqlalchemy import NullPool, create_engine, text
from sqlmodel import SQLModel

import services.models  # noqa: F401 - fills SQLModel.metadata

MIGRATION_LOCK = 0x617373697A6573  # so that two migrations at once run one after the other


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


engine = create_engine(database_url(), poolclass=NullPool)
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=SQLModel.metadata, include_name=include, compare_type=True)
    with context.begin_transaction():
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        context.run_migrations()
