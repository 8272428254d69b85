"""Metrics: what a process counts, and the page on which it shows that to Prometheus.

Guarantee: each process has a registry of its own, made by its composition root; none is global.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from services.foundation.errors import Misconfigured
from services.foundation.settings import Settings


def make_registry() -> CollectorRegistry:
    """A registry that holds what is known of every process: `process_resident_memory_bytes` and its like."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


@contextmanager
def exposed(registry: CollectorRegistry, settings: Settings) -> Iterator[None]:
    """Show a registry over HTTP for the length of the block, where the settings name a port. Raises Misconfigured."""
    if settings.metrics_port == 0:
        yield
        return
    try:
        server, thread = start_http_server(settings.metrics_port, settings.metrics_host, registry)
    except OSError as error:
        raise Misconfigured(f"ASSIZES_METRICS_HOST, ASSIZES_METRICS_PORT: {error.strerror or error}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
