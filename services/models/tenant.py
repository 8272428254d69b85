"""Tenants and their keys.

Guarantee: a key itself is never stored, only its SHA-256; a tenant's webhook secret is stored, since it must sign.
"""

from datetime import datetime
from uuid import UUID

from sqlmodel import Field, SQLModel

from services.models.columns import instant, text


class Tenant(SQLModel, table=True):
    """Who owns jobs. `webhook_secret` (`whsec_...`) signs the callbacks of its jobs."""

    id: UUID = Field(primary_key=True)
    name: str = Field(sa_column=text(unique=True))
    webhook_secret: str = Field(sa_column=text())
    created_at: datetime = Field(sa_column=instant(default_now=True))


class ApiKey(SQLModel, table=True):
    """A key, by its hash. `hint` is its visible beginning, for people."""

    __tablename__ = "api_key"

    id: UUID = Field(primary_key=True)
    tenant_id: UUID = Field(foreign_key="tenant.id", index=True)
    sha256: str = Field(sa_column=text(unique=True))
    hint: str = Field(sa_column=text())
    created_at: datetime = Field(sa_column=instant(default_now=True))
    revoked_at: datetime | None = Field(default=None, sa_column=instant(nullable=True))
