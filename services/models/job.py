"""Jobs and their items.

Guarantee: a job's counts change by one delta per ended chunk, under the job's row lock; its items are inserted with it
and never change. Caller content is JSON text, as sent.
"""

from datetime import date, datetime
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, Column, Index, Integer, SmallInteger, Text, UniqueConstraint
from sqlmodel import Field, SQLModel

from services.models.columns import instant, text


class Job(SQLModel, table=True):
    """One job. `day` is its creation day (UTC): the partition of its traces.

    `settings` is JSON with every option resolved; `metadata_json` and `callback` are JSON as sent. `succeeded`,
    `failed`, `cancelled` and `expired` count the items of ended chunks. `version` grows with each change that a caller
    can see; `sequence` numbers its webhook events. `reread_of` is the job whose traces this one reads again, `retry_of`
    the one whose items without an answer it tries again. With a `deleted_at` it is nobody's any more, and is being
    removed.
    """

    __table_args__ = (
        Index("job_of_tenant", "tenant_id", "id"),
        Index(
            "job_open_deadline",
            "deadline",
            postgresql_where="status IN ('queued', 'running', 'cancelling')",
        ),
        Index("job_reread_of", "reread_of", postgresql_where="reread_of IS NOT NULL"),
        Index("job_retry_of", "retry_of", postgresql_where="retry_of IS NOT NULL"),
        Index("job_deleted", "deleted_at", postgresql_where="deleted_at IS NOT NULL"),
        Index("job_ended", "ended_at", "id", postgresql_where="deleted_at IS NULL"),
        Index("job_of_day", "day"),
        {"postgresql_with": {"fillfactor": "80"}},
    )

    id: UUID = Field(primary_key=True)
    tenant_id: UUID = Field(foreign_key="tenant.id")
    day: date
    kind: str = Field(sa_column=text())
    status: str = Field(sa_column=text())
    priority: int = Field(sa_column=Column(SmallInteger, nullable=False))
    judges: list[str] = Field(sa_column=Column(ARRAY(Text), nullable=False))
    settings: str = Field(sa_column=text())
    name: str | None = Field(default=None, sa_column=text(nullable=True))
    metadata_json: str = Field(sa_column=text(default="{}"))
    callback: str | None = Field(default=None, sa_column=text(nullable=True))
    reread_of: UUID | None = Field(default=None, foreign_key="job.id", ondelete="SET NULL")
    retry_of: UUID | None = Field(default=None, foreign_key="job.id", ondelete="SET NULL")

    total: int
    succeeded: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    failed: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    cancelled: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    expired: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    calls: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
    prompt_tokens: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
    cached_tokens: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
    completion_tokens: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))

    version: int = Field(default=1, sa_column=Column(BigInteger, nullable=False, server_default="1"))
    sequence: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))

    created_at: datetime = Field(sa_column=instant(default_now=True))
    started_at: datetime | None = Field(default=None, sa_column=instant(nullable=True))
    cancelling_at: datetime | None = Field(default=None, sa_column=instant(nullable=True))
    ended_at: datetime | None = Field(default=None, sa_column=instant(nullable=True))
    deadline: datetime = Field(sa_column=instant())
    deleted_at: datetime | None = Field(default=None, sa_column=instant(nullable=True))


class Item(SQLModel, table=True):
    """One item, inserted by COPY.

    `input` is the item's JSON text exactly as sent. `custom_id` is a JSON string literal (it may hold NUL), its hash a
    128-bit BLAKE2b of the string. `facets` is JSON `{"label", "cluster", "systems"}`: what reports need without the
    texts.
    """

    __table_args__ = (UniqueConstraint("job_id", "custom_id_hash", name="item_custom_id"),)

    job_id: UUID = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    custom_id: str = Field(sa_column=text())
    custom_id_hash: UUID
    input: str = Field(sa_column=Column(Text, nullable=False))
    facets: str = Field(sa_column=text())
