"""Identifiers: time-ordered UUIDs inside, prefixed strings outside (`job_0199...`), which sort by time as well."""

from uuid import UUID

import uuid_utils


def new_id() -> UUID:
    """A fresh UUID version 7 (RFC 9562): its order is its time's."""
    return UUID(int=uuid_utils.uuid7().int)


def shown(prefix: str, identifier: UUID) -> str:
    """The outside form of an identifier."""
    return f"{prefix}_{identifier.hex}"


def parsed(prefix: str, text: str) -> UUID | None:
    """The inside form, or None when `text` is no identifier with this prefix."""
    head, _, tail = text.rpartition("_")
    if head != prefix or len(tail) != 32 or tail != tail.lower():
        return None
    try:
        return UUID(hex=tail)
    except ValueError:
        return None
