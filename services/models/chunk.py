"""Chunks: the unit of claiming. A run of items of one job, for one stage and one model.

Guarantee: `fence` grows with every claim, so a writer that lost its chunk can be told from the one that has it. Every
item lies in exactly one chunk that `settles`.
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, SmallInteger
from sqlmodel import Field, SQLModel

from services.models.columns import instant, text


class Chunk(SQLModel, table=True):
    """Items `first_seq` (included) to `end_seq` (excluded) of a job.

    `step` counts the stages of its job, from 0. A chunk `settles` when its end settles its items: they have a verdict
    then, or are cancelled or expired as it is. `succeeded` and `failed` count the verdicts written so far, so they are
    0 where it does not settle; each flush moves them, and ending the chunk adds them to the job.
    An item is reckoned to take `calls_per_item` of the runtime, 0 where the chunk needs none.
    `deaths` counts those at which it was in flight, since it runs `alone` if it does: with nothing beside it.
    `flushes` tells a writer whose commit went unanswered whether it went through.
    The indexes cover `state`, which changes twice in a chunk's life, and none of the columns that flushes move.
    """

    __table_args__ = (
        Index(
            "chunk_claimable",
            "model",
            "priority",
            "job_id",
            "ordinal",
            "part",
            postgresql_where="state = 'queued'",
        ),
        Index(
            "chunk_settleable",
            "stage",
            "priority",
            "job_id",
            "ordinal",
            "part",
            postgresql_where="model = 'cpu' AND state = 'queued'",
        ),
        Index("chunk_finished", "model", "finished_at", postgresql_where="state = 'finished'"),
        Index("chunk_suspect", "model", postgresql_where="alone AND state = 'queued'"),
        Index("chunk_running", "claimed_by", postgresql_where="state = 'running'"),
        Index(
            "chunk_open",
            "job_id",
            "model",
            "state",
            "ordinal",
            "part",
            postgresql_where="state IN ('waiting', 'queued', 'running')",
        ),
        Index("chunk_reread", "job_id", postgresql_where="stage = 'reread'"),
        Index("chunk_results", "job_id", "finished_version", "first_seq", postgresql_where="settles"),
        {"postgresql_with": {"fillfactor": "80"}},
    )

    job_id: UUID = Field(primary_key=True, foreign_key="job.id")
    stage: str = Field(sa_column=Column(text().type, primary_key=True))
    ordinal: int = Field(primary_key=True)
    part: int = Field(sa_column=Column(SmallInteger, primary_key=True, autoincrement=False))
    model: str = Field(sa_column=Column(text().type, primary_key=True))

    first_seq: int
    end_seq: int
    priority: int = Field(sa_column=Column(SmallInteger, nullable=False))
    step: int = Field(sa_column=Column(SmallInteger, nullable=False))
    calls_per_item: int = Field(sa_column=Column(SmallInteger, nullable=False))
    state: str = Field(sa_column=text())
    settles: bool = Field(sa_column=Column(Boolean, nullable=False))
    fence: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
    claimed_by: UUID | None = None
    claimed_at: datetime | None = Field(default=None, sa_column=instant(nullable=True))
    alone: bool = Field(default=False, sa_column=Column(Boolean, nullable=False, server_default="false"))
    deaths: int = Field(default=0, sa_column=Column(SmallInteger, nullable=False, server_default="0"))
    flushes: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))

    succeeded: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    failed: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    calls: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    prompt_tokens: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
    cached_tokens: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
    completion_tokens: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))

    finished_version: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    finished_at: datetime | None = Field(default=None, sa_column=instant(nullable=True))
