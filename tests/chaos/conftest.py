"""Servers that the tests of one module may stop, kill and start again."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import add_template
from tests.servers import OwnPostgres, OwnValkey


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[OwnPostgres]:
    """A PostgreSQL with the migrated template. A module uses it by returning its `server` as `postgres_server`."""
    with tempfile.TemporaryDirectory(prefix="assizes-test-", dir="/tmp") as folder:
        own = OwnPostgres(Path(folder))
        try:
            add_template(own.server)
            yield own
        finally:
            own.end()


@pytest.fixture(scope="module")
def own_valkey() -> Iterator[OwnValkey]:
    """A Valkey. A module uses it by returning its `server` as `valkey_server`."""
    with tempfile.TemporaryDirectory(prefix="assizes-test-", dir="/tmp") as folder:
        own = OwnValkey(Path(folder))
        try:
            yield own
        finally:
            own.end()
