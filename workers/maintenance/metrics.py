"""What the maintenance worker counts, for Prometheus.

Guarantee: labels are bounded: names of chores, of the fleet's models and of stages, never a caller's text. May be
called from any thread.
"""

from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

from services.foundation.metrics import make_registry

CHORE_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300)
ATTEMPT_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15)
CLASSES = ("2xx", "3xx", "4xx", "5xx", "none")


class MaintenanceMetrics:
    """The counters of one maintenance worker."""

    def __init__(self) -> None:
        self.registry = make_registry()
        self._chores = Histogram(
            "assizes_chore_seconds", "One run of a chore", ("chore",), buckets=CHORE_SECONDS, registry=self.registry
        )
        self._failures = self._counter("assizes_chore_failures", "Runs of a chore that failed", "chore")
        self._done = Gauge(
            "assizes_chore_last_success_timestamp_seconds",
            "When a chore last ran to its end, or else its process began with it, in Unix time",
            ("chore",),
            registry=self.registry,
        )
        self._rescued = self._counter("assizes_chunks_rescued", "Chunks taken from workers that went silent", "model")
        self._expired = self._counter("assizes_jobs_expired", "Jobs that were ended by their deadline")
        self._bells = self._counter("assizes_bells_rung", "Bells rung", "model")
        self._unrung = self._counter("assizes_bell_failures", "Times that the broker did not take a bell", "model")
        self._settled = self._counter("assizes_chunks_settled", "Chunks settled without a runtime", "stage")
        self._attempts = Histogram(
            "assizes_webhook_attempt_seconds",
            "One attempt to deliver a webhook, by the class of its answer's status",
            ("status",),
            buckets=ATTEMPT_SECONDS,
            registry=self.registry,
        )
        for status in CLASSES:
            self._attempts.labels(status)  # shown as 0 from the start, so that a first increase is seen

    def began(self, chore: str) -> None:
        """A chore is done from now on: also one whose first run fails, or never ends, is seen."""
        self._chores.labels(chore)
        self._failures.labels(chore)
        self._done.labels(chore).set_to_current_time()

    def ran(self, chore: str, seconds: float) -> None:
        """A chore ran to its end."""
        self._chores.labels(chore).observe(seconds)
        self._done.labels(chore).set_to_current_time()

    def failed(self, chore: str, seconds: float) -> None:
        """A run of a chore raised."""
        self._chores.labels(chore).observe(seconds)
        self._failures.labels(chore).inc()

    def rescued(self, models: Iterable[str]) -> None:
        """Chunks of these models, one each, can be claimed again."""
        for model in models:
            self._rescued.labels(model).inc()

    def expired(self, jobs: int) -> None:
        """So many jobs ended by their deadline."""
        self._expired.inc(jobs)

    def rang(self, model: str, bells: int | None) -> None:
        """So many bells were rung for a model; None: the broker did not take them."""
        if bells is None:
            self._unrung.labels(model).inc()
        else:
            self._bells.labels(model).inc(bells)

    def settled(self, stage: str) -> None:
        """A chunk of this stage was settled, or put off because it could not be."""
        self._settled.labels(stage).inc()

    def attempted(self, status: int | None, seconds: float) -> None:
        """A webhook was attempted: `status` is None where no answer came."""
        self._attempts.labels("none" if status is None else f"{status // 100}xx").observe(seconds)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self.registry)
