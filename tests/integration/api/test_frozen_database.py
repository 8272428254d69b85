"""A PostgreSQL that accepts connections and then says nothing: whoever looks after the API learns of it in time."""

import os
import signal
import time
from collections.abc import Iterator

import pytest
from flask import Flask
from structlog.testing import capture_logs

from embedded.postgres import Postgres
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
    page = app.test_client().get("/metrics").text
    assert time.monotonic() - began < IN_TIME
    assert "assizes_database_up 0.0" in page
    assert "assizes_queued_chunks" not in page
