"""Workers and the runtimes they are pinned to.

Guarantee: a worker's lease is judged on the database's clock alone.
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import Column, Index, Integer
from sqlmodel import Field, SQLModel

from services.models.columns import instant, jsonb, text


class Worker(SQLModel, table=True):
    """One worker process. When `lease_until` has passed, its chunks are claimable by others.

    It hears as many chunks at once as it has `slots`, and a few urgent ones beside them.
    """

    __table_args__ = (Index("worker_of_model", "model", "lease_until"),)

    id: UUID = Field(primary_key=True)
    model: str = Field(sa_column=text())
    hostname: str = Field(sa_column=text())
    pid: int
    state: str = Field(sa_column=text())
    epoch_id: UUID | None = None
    slots: int = Field(sa_column=Column(Integer, nullable=False))
    running_calls: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    tokens_per_second: float = Field(default=0.0)
    started_at: datetime = Field(sa_column=instant(default_now=True))
    heartbeat_at: datetime = Field(sa_column=instant(default_now=True))
    lease_until: datetime = Field(sa_column=instant())


class RuntimeEpoch(SQLModel, table=True):
    """One start of a runtime: everything needed to reproduce, or to doubt, what it said."""

    __tablename__ = "runtime_epoch"

    id: UUID = Field(primary_key=True)
    worker_id: UUID = Field(foreign_key="worker.id")
    model: str = Field(sa_column=text())
    weights: str = Field(sa_column=text())
    revision: str | None = Field(default=None, sa_column=text(nullable=True))
    weights_hash: str | None = Field(default=None, sa_column=text(nullable=True))
    template_hash: str | None = Field(default=None, sa_column=text(nullable=True))
    runtime_version: str | None = Field(default=None, sa_column=text(nullable=True))
    launch_flags: list[str] | None = Field(default=None, sa_column=jsonb(nullable=True))
    server_info: dict[str, object] = Field(sa_column=jsonb())
    started_at: datetime = Field(sa_column=instant(default_now=True))
    ended_at: datetime | None = Field(default=None, sa_column=instant(nullable=True))
