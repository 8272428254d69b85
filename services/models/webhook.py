"""Webhook events and their deliveries.

Guarantee: an event is written in the transaction that makes it true; a delivery is marked only after the receiver said
2xx. An event takes its deliveries and their attempts with it.
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import Column, Index, Integer
from sqlmodel import Field, SQLModel

from services.models.columns import instant, text


class Event(SQLModel, table=True):
    """Something that happened to a job. `sequence` counts within the job from 1; `payload` is the JSON body to send."""

    __table_args__ = (Index("event_unfanned", "id", postgresql_where="fanned_at IS NULL"),)

    id: UUID = Field(primary_key=True)
    tenant_id: UUID
    job_id: UUID = Field(index=True)
    type: str = Field(sa_column=text())
    sequence: int
    payload: str = Field(sa_column=text())
    created_at: datetime = Field(sa_column=instant(default_now=True))
    fanned_at: datetime | None = Field(default=None, sa_column=instant(nullable=True))


class Delivery(SQLModel, table=True):
    """One event on its way to one URL. Its id is the `webhook-id`, the same at every attempt."""

    __table_args__ = (Index("delivery_due", "next_at", postgresql_where="state = 'pending'"),)

    id: UUID = Field(primary_key=True)
    event_id: UUID = Field(foreign_key="event.id", index=True, ondelete="CASCADE")
    tenant_id: UUID
    job_id: UUID = Field(index=True)
    url: str = Field(sa_column=text())
    state: str = Field(sa_column=text())
    attempts: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    next_at: datetime = Field(sa_column=instant(default_now=True))
    created_at: datetime = Field(sa_column=instant(default_now=True))
    ended_at: datetime | None = Field(default=None, sa_column=instant(nullable=True))


class DeliveryAttempt(SQLModel, table=True):
    """One POST. `status` is null where no answer came, then `error` says why; `body` is the reply's first kilobyte."""

    __tablename__ = "delivery_attempt"

    delivery_id: UUID = Field(primary_key=True, foreign_key="delivery.id", ondelete="CASCADE")
    number: int = Field(primary_key=True)
    started_at: datetime = Field(sa_column=instant())
    latency_ms: float
    status: int | None = None
    error: str | None = Field(default=None, sa_column=text(nullable=True))
    body: str | None = Field(default=None, sa_column=text(nullable=True))
