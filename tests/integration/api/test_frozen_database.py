"""A PostgreSQL that says nothing, or not everything: whoever looks after the API learns of it in time."""

import os
import signal
import time
from collections.abc import Iterator, Sequence

import pytest
from flask import Flask
from sqlalchemy import Connection, Engine, text
from structlog.testing import capture_logs

from embedded.postgres import Postgres
from services.foundation.database import transaction
from services.jobs.census import Census
from tests.integration.api.conftest import check_problem

IN_TIME = 6.0  # seconds: a health check waits no longer


@pytest.fixture
def frozen(app: Flask, postgres_server: Postgres) -> Iterator[None]:
    """PostgreSQL and all its sessions are stopped for the length of the test."""
    assert app.test_client().get("/readyz").status_code == 200
    os.killpg(postgres_server.child.pid, signal.SIGSTOP)
    yield
    os.killpg(postgres_server.child.pid, signal.SIGCONT)


def test_readiness_says_no_within_seconds(app: Flask, frozen: None) -> None:
    began = time.monotonic()
    with capture_logs():
        check_problem(app.test_client().get("/readyz"), 503, "database_unavailable")
    assert time.monotonic() - began < IN_TIME


def test_metrics_are_shown_within_seconds(app: Flask, frozen: None) -> None:
    began = time.monotonic()
    with capture_logs() as lines:
        page = app.test_client().get("/metrics").text
    assert time.monotonic() - began < IN_TIME
    assert "assizes_database_up 0.0" in page
    assert "assizes_queued_chunks" not in page
    assert "database_away" in [line["event"] for line in lines]


def error_of_the_census(app: Flask) -> str:
    """Look at /metrics, which shows that PostgreSQL answers and nothing that it holds. Returns the error logged."""
    with capture_logs() as lines:
        page = app.test_client().get("/metrics").text
    assert "assizes_database_up 1.0" in page
    assert "assizes_queued_chunks" not in page
    (error,) = [line["error"] for line in lines if line["event"] == "census_failed"]
    assert isinstance(error, str)
    return error


def test_a_database_that_cannot_be_read_is_not_called_away(app: Flask, engine: Engine) -> None:
    with transaction(engine) as connection:
        connection.execute(text("ALTER TABLE worker RENAME COLUMN lease_until TO leased_until"))
    assert error_of_the_census(app) == "UndefinedColumn"


def test_a_slow_census_is_broken_off_in_time(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    def take_slowly(connection: Connection, models: Sequence[str]) -> Census:
        for _ in range(8):
            connection.execute(text("SELECT pg_sleep(1.5)"))
        return Census({}, {})

    monkeypatch.setattr("api.routes.health.take_census", take_slowly)
    began = time.monotonic()
    assert error_of_the_census(app) == "TransactionTimeout"
    assert time.monotonic() - began < IN_TIME
