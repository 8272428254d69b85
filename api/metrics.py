"""What the API counts, for Prometheus.

Guarantee: labels are bounded: routes, methods, statuses and the fleet's own names, never a caller's text.
"""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300)


class Metrics:
    """The counters of one app."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "assizes_http_requests", "Requests answered", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "assizes_http_request_seconds",
            "Seconds until an answer began",
            ("method", "route"),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._jobs = Counter("assizes_jobs_submitted", "Jobs accepted", ("model",), registry=self._registry)
        self._waiting = Gauge(
            "assizes_queued_items", "Items that wait for a model", ("model",), registry=self._registry
        )
        self._database = Gauge("assizes_database_up", "1 when PostgreSQL answers", registry=self._registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def submitted(self, model: str) -> None:
        """Count one job of a model; a panel's counts for each of its models."""
        self._jobs.labels(model).inc()

    def page(self, waiting: Mapping[str, int] | None) -> bytes:
        """The page that Prometheus reads. `waiting`: queued items by model, None when the database does not answer."""
        self._database.set(0 if waiting is None else 1)
        for model, items in (waiting or {}).items():
            self._waiting.labels(model).set(items)
        return generate_latest(self._registry)
