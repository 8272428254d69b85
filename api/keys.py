"""Tenants and their keys.

Guarantee: a key is shown once, when it is made; only its SHA-256 is kept. A revoked key stays revoked. Keys are looked
up by their hash, so the time that a look-up takes tells nothing about a key.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from sqlalchemy import Connection, RowMapping, text

from services.foundation.errors import Conflict, NotFound
from services.foundation.identifiers import new_id
from services.webhooks.sign import new_secret

PREFIX = "ask_"
SHOWN = len(PREFIX) + 6

ADD_TENANT = text(
    """
    INSERT INTO tenant (id, name, webhook_secret) VALUES (:id, :name, :secret)
    ON CONFLICT (name) DO NOTHING RETURNING id
    """
)
TENANT = text("SELECT id FROM tenant WHERE name = :name")
ADD_KEY = text("INSERT INTO api_key (id, tenant_id, sha256, hint) VALUES (:id, :tenant_id, :sha256, :hint)")
WHOSE = text("SELECT tenant_id FROM api_key WHERE sha256 = :sha256 AND revoked_at IS NULL")
MATCHING = text(
    """
    SELECT id FROM api_key WHERE revoked_at IS NULL AND (hint = :hint OR sha256 = :sha256) FOR UPDATE
    """
)
REVOKE = text("UPDATE api_key SET revoked_at = now() WHERE id = :id")
ALL = text(
    """
    SELECT tenant.name AS tenant, api_key.hint, api_key.created_at, api_key.revoked_at
    FROM api_key JOIN tenant ON tenant.id = api_key.tenant_id ORDER BY tenant.name, api_key.created_at
    """
)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key, and the webhook secret when the tenant is new: seen here and never again."""

    key: str
    webhook_secret: str | None


def create_key(connection: Connection, tenant: str) -> NewKey:
    """Make a key for `tenant`, and the tenant when there is none of this name."""
    secret = new_secret()
    added = connection.scalar(ADD_TENANT, {"id": new_id(), "name": tenant, "secret": secret})
    tenant_id = added or connection.scalar(TENANT, {"name": tenant})
    key = PREFIX + secrets.token_urlsafe(32)
    connection.execute(ADD_KEY, {"id": new_id(), "tenant_id": tenant_id, "sha256": _hash(key), "hint": key[:SHOWN]})
    return NewKey(key, secret if added else None)


def tenant_of(connection: Connection, key: str) -> UUID | None:
    """Whose live key this is, if anybody's."""
    found: UUID | None = connection.scalar(WHOSE, {"sha256": _hash(key)})
    return found


def revoke_key(connection: Connection, *, hint: str | None = None, key: str | None = None) -> None:
    """Revoke the live key that begins with `hint`, or is `key`. Raises NotFound, Conflict when several begin so."""
    bound = {"hint": hint, "sha256": _hash(key) if key else None}
    matching = connection.execute(MATCHING, bound).scalars().all()
    if not matching:
        raise NotFound("there is no such live key")
    if len(matching) > 1:
        raise Conflict("several keys begin so; name the key itself")
    connection.execute(REVOKE, {"id": matching[0]})


def list_keys(connection: Connection) -> Sequence[RowMapping]:
    """Every key: `tenant`, `hint`, `created_at`, `revoked_at`."""
    return connection.execute(ALL).mappings().all()


def _hash(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
