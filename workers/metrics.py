"""What a GPU worker counts, for Prometheus.

Guarantee: labels are bounded: the one model's name and closed vocabularies, never a caller's text. May be called from
any thread.
"""

from collections.abc import Callable
from functools import partial

from prometheus_client import Counter, Gauge, Histogram

from services.foundation.metrics import make_registry
from services.jobs.meter import Ending
from services.judging.heard import Heard
from services.judging.runtime import CallRefused, Completion, RuntimeFault, RuntimeUnavailable
from services.vocabulary import Outcome, WorkerState
from workers.runtime.gate import Gate

CALL_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
QUEUE_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)
FLUSH_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
TOKENS = ("prompt", "cached", "completion")
ANSWERED, REFUSED, BROKEN = "answered", "refused", "broken"


class WorkerMetrics:
    """The counters of one worker. It is the `Meter` of what its chunks come to."""

    def __init__(self, model: str) -> None:
        self.registry = make_registry()
        self._model = model
        self._calls = self._counter("assizes_calls", "Calls by what they came to", "outcome")
        self._answers = self._counter("assizes_runtime_answers", "Calls by how the runtime answered them", "answer")
        self._aborted = self._counter("assizes_calls_aborted", "Running calls that this worker aborted")
        self._tokens = self._counter("assizes_tokens", "Tokens of answered calls", "kind")
        self._call_seconds = self._histogram("assizes_call_seconds", "From sending a call to its answer", CALL_SECONDS)
        self._queue_seconds = self._histogram(
            "assizes_call_queue_seconds", "What of that a call waited inside the runtime", QUEUE_SECONDS
        )
        self._running = self._gauge("assizes_calls_running", "Calls on the runtime now")
        self._target = self._gauge("assizes_calls_running_target", "Calls that keep the runtime full")
        self._waiting = self._gauge("assizes_calls_waiting", "Calls that wait for a place on the runtime")
        self._claims = self._counter("assizes_chunks_claimed", "Chunks claimed")
        self._endings = self._counter("assizes_chunks_let_go", "Claimed chunks by how they were let go", "ending")
        self._flush_seconds = self._histogram("assizes_flush_seconds", "One write of results", FLUSH_SECONDS)
        self._rows = self._counter("assizes_flushed_rows", "Rows written")
        self._failures = self._counter("assizes_flush_failures", "Writes that failed and were repeated", "error")
        self._restarts = self._counter("assizes_runtime_restarts", "Starts of the runtime after the first")
        self._states = self._gauge("assizes_runtime_state", "1 for the state of worker and runtime", "state")
        # shown as 0 from the start, so that a first increase is seen
        for plain in (self._aborted, self._claims, self._rows, self._restarts):
            plain.labels(model)
        for counter, values in (
            (self._calls, Outcome),
            (self._answers, (ANSWERED, REFUSED, BROKEN, *RuntimeFault)),
            (self._tokens, TOKENS),
            (self._endings, Ending),
        ):
            for value in values:
                counter.labels(model, value)

    def watch_gate(self, gate: Gate) -> None:
        """Show how many calls are inside and before the gate, and its places, whenever somebody looks."""
        self._running.labels(self._model).set_function(lambda: gate.inside)
        self._target.labels(self._model).set_function(lambda: gate.places)
        self._waiting.labels(self._model).set_function(lambda: gate.waiting)

    def watch_state(self, state: Callable[[], WorkerState]) -> None:
        """Show the worker's state whenever somebody looks."""
        for one in WorkerState:
            self._states.labels(self._model, one).set_function(partial(_is_in, state, one))

    def answered(self, came: Completion | Exception, seconds: float) -> None:
        """The runtime answered a call, or failed to."""
        self._answers.labels(self._model, _answer(came)).inc()
        if not isinstance(came, Completion):
            return
        self._call_seconds.labels(self._model).observe(seconds)
        if came.queue_s is not None:
            self._queue_seconds.labels(self._model).observe(came.queue_s)
        for kind, count in zip(TOKENS, (came.prompt_tokens, came.cached_tokens, came.completion_tokens), strict=True):
            self._tokens.labels(self._model, kind).inc(count or 0)

    def restarted(self, starts: int) -> None:
        """The runtime that answers now was started so many times since the one before it."""
        self._restarts.labels(self._model).inc(starts)

    def aborted(self) -> None:
        """A call on the runtime was given up."""
        self._aborted.labels(self._model).inc()

    def claimed(self) -> None:
        """A chunk was claimed."""
        self._claims.labels(self._model).inc()

    def heard(self, heard: Heard) -> None:
        """See Meter."""
        self._calls.labels(self._model, heard.outcome).inc()

    def written(self, rows: int, seconds: float) -> None:
        """See Meter."""
        self._flush_seconds.labels(self._model).observe(seconds)
        self._rows.labels(self._model).inc(rows)

    def not_written(self, error: str) -> None:
        """See Meter."""
        self._failures.labels(self._model, error).inc()

    def let_go(self, ending: Ending) -> None:
        """See Meter."""
        self._endings.labels(self._model, ending).inc()

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, ("model", *labels), registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(name, what, ("model", *labels), registry=self.registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, what, ("model",), buckets=buckets, registry=self.registry)


def _is_in(state: Callable[[], WorkerState], one: WorkerState) -> float:
    return float(state() is one)


def _answer(came: Completion | Exception) -> str:
    match came:
        case Completion():
            return ANSWERED
        case CallRefused():
            return REFUSED
        case RuntimeUnavailable():
            return came.code
        case _:
            return BROKEN  # a fault of ours
