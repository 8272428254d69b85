"""Whose request it is.

Guarantee: a request has a tenant only through a live key. Keys are looked up by their SHA-256, so the time that a
look-up takes tells nothing about a key.
"""

from hashlib import sha256
from uuid import UUID

from flask import g, request
from sqlalchemy import text

from api.errors import Unauthorized
from api.session import session

WHOSE = text("SELECT tenant_id FROM api_key WHERE sha256 = :sha256 AND revoked_at IS NULL")


def authenticate() -> None:
    """Find the tenant of the current request. Raises Unauthorized."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthorized("a key is needed: Authorization: Bearer ask_...")
    with session() as connection:
        tenant_id = connection.scalar(WHOSE, {"sha256": key_hash(key.strip())})
    if tenant_id is None:
        raise Unauthorized("the key is unknown or revoked")
    g.tenant_id = tenant_id


def tenant_id() -> UUID:
    """The tenant of the current request, once authenticated."""
    found: UUID = g.tenant_id
    return found


def key_hash(key: str) -> str:
    """What is kept of a key: its SHA-256 in hexadecimal digits."""
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
