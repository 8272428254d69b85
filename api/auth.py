"""Whose request it is.

Guarantee: a request has a tenant only through a live key.
"""

from uuid import UUID

from flask import g, request

from api.errors import Unauthorized
from api.keys import tenant_of
from api.session import session


def authenticate() -> None:
    """Find the tenant of the current request. Raises Unauthorized."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthorized("a key is needed: Authorization: Bearer ask_...")
    with session() as connection:
        found = tenant_of(connection, key.strip())
    if found is None:
        raise Unauthorized("the key is unknown or revoked")
    g.tenant_id = found


def tenant_id() -> UUID:
    """The tenant of the current request, once authenticated."""
    found: UUID = g.tenant_id
    return found
