"""Deaths of workers and runtimes: the evidence against an item.

Guarantee: insert-only, one row for each claim that was in flight at a death.
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, Boolean, Column, Index, SmallInteger
from sqlmodel import Field, SQLModel

from services.models.columns import instant, text


class Death(SQLModel, table=True):
    """One claim of a chunk, by its `fence`, that was in flight at a death. `alone`: nothing else was.

    `cause` is what died: the worker, its runtime, or only the work at the chunk, by an error of ours.
    """

    __table_args__ = (Index("death_alone", "model", "told_at", postgresql_where="alone"),)

    job_id: UUID = Field(primary_key=True)
    stage: str = Field(sa_column=Column(text().type, primary_key=True))
    ordinal: int = Field(primary_key=True)
    part: int = Field(sa_column=Column(SmallInteger, primary_key=True, autoincrement=False))
    model: str = Field(sa_column=Column(text().type, primary_key=True))
    fence: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    alone: bool = Field(sa_column=Column(Boolean, nullable=False))
    cause: str = Field(sa_column=text())
    worker_id: UUID
    epoch_id: UUID | None = None
    told_at: datetime = Field(sa_column=instant(default_now=True))
