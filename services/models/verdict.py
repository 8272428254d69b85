"""Opinions and verdicts, insert-only: one opinion an item and judge, one verdict an item."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ARRAY, Column, Text
from sqlmodel import Field, SQLModel

from services.models.columns import instant, jsonb, text


class Opinion(SQLModel, table=True):
    """One judge's answer on one item. `body` is `services.judging.opinion.Opinion` as JSON."""

    job_id: UUID = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    judge: str = Field(sa_column=Column(text().type, primary_key=True))
    body: dict[str, object] = Field(sa_column=jsonb())


class Verdict(SQLModel, table=True):
    """The panel's answer on one item, or why there is none. `winner` null with status `succeeded` is an abstention.

    Of more than two candidates `winner` is an index, in digits, and `standing` is how they stand, as JSON
    (`services.judging.standing.Standing`). `missing` are the judges of the panel that gave no opinion, null when none
    is missing.
    """

    job_id: UUID = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    status: str = Field(sa_column=text())
    winner: str | None = Field(default=None, sa_column=text(nullable=True))
    p_a: float | None = None
    consistent: bool | None = None
    standing: dict[str, object] | None = Field(default=None, sa_column=jsonb(nullable=True))
    missing: list[str] | None = Field(default=None, sa_column=Column(ARRAY(Text), nullable=True))
    disagreement: float | None = None
    error_code: str | None = Field(default=None, sa_column=text(nullable=True))
    error_message: str | None = Field(default=None, sa_column=text(nullable=True))
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    created_at: datetime = Field(sa_column=instant(default_now=True))
