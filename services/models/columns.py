"""Column types that the tables share."""

from typing import Any

from sqlalchemy import Column, DateTime, Text, func
from sqlalchemy.dialects.postgresql import JSONB


def instant(*, nullable: bool = False, default_now: bool = False) -> Column[Any]:
    """A point in time, with time zone; by default the database's own `now()`."""
    return Column(DateTime(timezone=True), nullable=nullable, server_default=func.now() if default_now else None)


def text(*, nullable: bool = False, unique: bool = False, default: str | None = None) -> Column[Any]:
    """Text without a limit."""
    return Column(Text, nullable=nullable, unique=unique, server_default=default)


def jsonb(*, nullable: bool = False) -> Column[Any]:
    """JSON of our own making (numbers, vocabularies), never a caller's content."""
    return Column(JSONB, nullable=nullable)
