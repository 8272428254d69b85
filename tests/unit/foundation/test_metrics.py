"""The page that a process shows to Prometheus."""

import socket
from collections.abc import Callable

import httpx
import pytest
from prometheus_client import Counter

from services.foundation.errors import Misconfigured
from services.foundation.metrics import exposed, make_registry
from services.foundation.settings import Settings


def at(port: int) -> Settings:
    """Settings with this port for metrics."""
    return Settings(database_url="postgresql://nowhere", redis_url="redis://nowhere", metrics_port=port)


def test_a_registry_is_shown_for_the_length_of_a_block(free_port: Callable[[], int]) -> None:
    registry, port = make_registry(), free_port()
    Counter("assizes_things", "Things", registry=registry).inc(3)
    with exposed(registry, at(port)):
        page = httpx.get(f"http://127.0.0.1:{port}/metrics").raise_for_status().text
    assert "assizes_things_total 3.0" in page
    assert "process_resident_memory_bytes" in page
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics")


def test_nothing_listens_where_no_port_is_named() -> None:
    with exposed(make_registry(), at(0)) as nothing:
        assert nothing is None


def test_a_port_that_is_taken_stops_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(Misconfigured, match="ASSIZES_METRICS_PORT: Address already in use"),
            exposed(make_registry(), at(taken.getsockname()[1])),
        ):
            pass
