"""A tenant, and rows for its jobs."""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine

from services.foundation.database import copy_rows, transaction
from services.foundation.identifiers import new_id


def insert(connection: Connection, table: str, **values: Any) -> None:
    """Insert one row."""
    copy_rows(connection, table, tuple(values), [tuple(values.values())])


@pytest.fixture
def tenant(engine: Engine) -> UUID:
    """A tenant."""
    tenant_id = new_id()
    with transaction(engine) as connection:
        insert(connection, "tenant", id=tenant_id, name="one", webhook_secret="whsec_x")
    return tenant_id
