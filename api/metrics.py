"""What the API tells Prometheus: what it counts itself, and what the database says is there.

Guarantee: labels are bounded: routes, methods, statuses and the fleet's own names, never a caller's text. What the
database does not say now is left out, never told as it was.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from services.foundation.metrics import make_registry
from services.jobs.census import Census
from services.vocabulary import JobStatus
from services.webhooks.queries import Backlog

SECONDS = (0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300)
OPEN = (JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.CANCELLING)


# name, what it is, field of ModelCount
BY_MODEL = (
    ("assizes_queued_chunks", "Chunks that wait for a model, counted to 10,000", "queued"),
    ("assizes_queue_oldest_seconds", "Age of the oldest job with a chunk that waits", "oldest_seconds"),
    ("assizes_running_chunks", "Chunks that workers hold", "running"),
    ("assizes_orphaned_chunks", "Running chunks whose worker has no lease any more", "orphans"),
    ("assizes_silent_workers", "Workers that lost their lease in the last ten minutes", "silent"),
    ("assizes_defunct", "1 when the last worker gave its runtime up and none has come since", "defunct"),
)
# name, what it is, field of Backlog
OF_WEBHOOKS = (
    ("assizes_events_unfanned", "Events that are not deliveries yet, counted to 10,000", "events"),
    ("assizes_deliveries_pending", "Webhooks not delivered yet, counted to 10,000", "pending"),
    ("assizes_deliveries_overdue", "Those that are due for a minute, counted to 10,000", "overdue"),
)


@dataclass(frozen=True, slots=True, eq=False)  # a registry tells its collectors apart by identity
class Facts(Collector):
    """What the database says is there now, as gauges."""

    census: Census
    backlog: Backlog

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family a fact."""
        models = self.census.models
        for name, what, field in BY_MODEL:
            family = GaugeMetricFamily(name, what, labels=("model",))
            for model, count in models.items():
                family.add_metric((model,), getattr(count, field))
            yield family
        workers = GaugeMetricFamily("assizes_workers", "Workers that hold a lease", labels=("model", "state"))
        for model, count in models.items():
            for state, number in count.workers.items():
                workers.add_metric((model, state), number)
        yield workers
        jobs = GaugeMetricFamily("assizes_open_jobs", "Jobs that have not ended, counted to 10,000", labels=("status",))
        for status in OPEN:
            jobs.add_metric((status,), self.census.jobs.get(status, 0))
        yield jobs
        for name, what, field in OF_WEBHOOKS:
            yield GaugeMetricFamily(name, what, value=getattr(self.backlog, field))


class Metrics:
    """The counters of one app."""

    def __init__(self) -> None:
        self.registry = make_registry()
        self._requests = Counter(
            "assizes_http_requests", "Requests answered", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "assizes_http_request_seconds",
            "Seconds until an answer began",
            ("method", "route"),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._jobs = Counter("assizes_jobs_submitted", "Jobs accepted", ("model",), registry=self.registry)
        self._database = Gauge("assizes_database_up", "1 when PostgreSQL answers", registry=self.registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def submitted(self, model: str) -> None:
        """Count one job of a model; a panel's counts for each of its models."""
        self._jobs.labels(model).inc()

    def page(self, database_answers: bool, facts: Facts | None) -> bytes:
        """The page that Prometheus reads. `facts`: None when they could not be read."""
        self._database.set(database_answers)
        page = generate_latest(self.registry)
        if facts is None:
            return page
        stated = CollectorRegistry()
        stated.register(facts)
        return page + generate_latest(stated)
