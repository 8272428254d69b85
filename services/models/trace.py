"""Traces: the raw record of every call, insert-only.

Guarantee: one row a call number; what was sent and what came back, unshortened. Partitioned by the job's creation day,
so that old traces are dropped, never deleted.
"""

from datetime import date, datetime
from uuid import UUID

from sqlalchemy import ARRAY, Boolean, Column, SmallInteger
from sqlmodel import Field, SQLModel

from services.models.columns import instant, jsonb, text


class Trace(SQLModel, table=True):
    """One call. `prompt`, `completion` and `error_message` are JSON string literals; `prompt` is null where only hashes
    are kept, and like its hash where the model's chat template refused what it was given.

    `call` is the call's number within its item and judge (`services.judging.proceeding.CallKey`). `slots` are the
    indices of the candidates shown, in slot order; `shown_order` names that order where it has a name. `label_logprobs`
    are natural logarithms by label, among the labels and at temperature 1. `latency_ms` is what the worker waited,
    `queue_ms` the runtime's own.
    """

    __table_args__ = ({"postgresql_partition_by": "RANGE (day)"},)

    day: date = Field(primary_key=True)
    job_id: UUID = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    stage: str = Field(sa_column=Column(text().type, primary_key=True))
    judge: str = Field(sa_column=Column(text().type, primary_key=True))
    call: int = Field(sa_column=Column(SmallInteger, primary_key=True))

    shown_order: str | None = Field(default=None, sa_column=text(nullable=True))
    slots: list[int] = Field(sa_column=Column(ARRAY(SmallInteger), nullable=False))
    sample: int = Field(sa_column=Column(SmallInteger, nullable=False))
    forced: bool = Field(sa_column=Column(Boolean, nullable=False))
    epoch_id: UUID
    outcome: str = Field(sa_column=text())
    reading: dict[str, object] = Field(sa_column=jsonb())
    prompt: str | None = Field(default=None, sa_column=text(nullable=True))
    prompt_sha256: str | None = Field(default=None, sa_column=text(nullable=True))
    completion: str | None = Field(default=None, sa_column=text(nullable=True))
    finish_reason: str | None = Field(default=None, sa_column=text(nullable=True))
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    label_logprobs: dict[str, float] | None = Field(default=None, sa_column=jsonb(nullable=True))
    sampling: dict[str, object] | None = Field(default=None, sa_column=jsonb(nullable=True))
    error_message: str | None = Field(default=None, sa_column=text(nullable=True))
    sent_at: datetime | None = Field(default=None, sa_column=instant(nullable=True))
    latency_ms: float | None = None
    queue_ms: float | None = None
    created_at: datetime = Field(sa_column=instant(default_now=True))
