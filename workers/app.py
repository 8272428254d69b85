"""The composition root of a GPU worker: runtime, judge, event loop, lease and queue are put together here.

Guarantee: it consumes only once its runtime answers, and only its own model's queue. However it ends in order, its
chunks are handed back, its lease is given up and the runtime that it launched is stopped.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import aiohttp
import structlog
from celery import Celery
from celery.signals import setup_logging, worker_shutting_down
from celery.worker import state as celery_state
from celery.worker.consumer import Consumer
from sqlalchemy import Engine

from services.foundation.broker import hear_queue, make_broker
from services.foundation.database import PASSING, make_engine, worker_sessions
from services.foundation.errors import Misconfigured
from services.foundation.fleet import FleetModel, load_fleet
from services.foundation.identifiers import new_id
from services.foundation.metrics import exposed
from services.foundation.settings import Settings
from services.jobs.lease import Epoch, close_epochs, enrol, open_epoch, retire
from services.judging.judge import Judge
from services.vocabulary import WorkerState
from workers.gpu import EXPRESS_SLOTS, GpuWorker
from workers.metrics import WorkerMetrics
from workers.runtime.client import SGLangRuntime, open_session
from workers.runtime.gate import Gate
from workers.runtime.launch import LaunchedRuntime, launch
from workers.runtime.loop import LoopThread
from workers.runtime.supervisor import Start, Supervisor
from workers.runtime.tokenizer import load_tokenizer, template_hash, vocabulary_size, weights_hash
from workers.switchboard import Switchboard
from workers.tasks import add_tasks

log = structlog.get_logger(__name__)

BROKER_PATIENCE = 15.0
DATABASE_PAUSE = 1.0
UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)  # what Celery meets in a message that is no bell
EX_FAILED, EX_DEFUNCT = 1, 3  # exit codes; 2 is a misconfiguration's


def run_worker(settings: Settings, name: str) -> int:
    """Run the worker of model `name` to its end. Exit codes: 0 stopped in order, 1 failed by itself, 3 its runtime is
    defunct.

    Raises Misconfigured.
    """
    fleet = load_fleet(settings.fleet)
    if name not in fleet.models:
        raise Misconfigured(f"the fleet has no model {name}; there are {', '.join(sorted(fleet.models))}")
    model = fleet.models[name]
    tokenizer = load_tokenizer(model.weights, model.revision, model.chat_template)
    known_tokens = vocabulary_size(tokenizer, model.weights, model.revision)
    judge = Judge.of(model, tokenizer, known_tokens)  # before the weights: what cannot be asked is not loaded
    signal.signal(signal.SIGTERM, _leave)  # until Celery takes over
    worker_id = new_id()
    structlog.contextvars.bind_contextvars(worker=str(worker_id))
    metrics = WorkerMetrics(name)
    engine = make_engine(settings.database_url, worker_sessions(worker_id), pool_size=settings.chunk_slots + 4)
    _enrol(engine, worker_id, name, settings)
    defunct = False
    try:
        with (
            exposed(metrics.registry, settings),
            LoopThread() as loop,
            connected(loop, model.url or "") as client,
        ):
            gate = Gate(1)  # until the runtime has said how much it takes
            metrics.watch_gate(gate)
            switchboard = Switchboard(client, gate, loop.loop, metrics)
            supervisor = Supervisor(
                client,
                loop,
                launch=partial(_launch, model, settings, worker_id, judge.classifies) if model.url is None else None,
                served={model.name, model.weights},
                canary=lambda rid: judge.first_call(f"{rid}-{worker_id}"),
                patience=settings.runtime_patience,
                failures=settings.runtime_failures,
            )
            record = partial(_record_epoch, engine, worker_id, model, template_hash(tokenizer))
            worker = GpuWorker(
                settings,
                engine,
                worker_id,
                judge,
                switchboard,
                supervisor,
                record,
                stop=_stop_consuming,
                metrics=metrics,
            )
            metrics.watch_state(lambda: worker.state)
            worker.start()
            try:
                consumed = supervisor.wait_until_met() and consume(
                    settings, name, worker, settings.chunk_slots + EXPRESS_SLOTS
                )
            finally:
                worker.close()
                supervisor.close()
                defunct = supervisor.state is WorkerState.DEFUNCT
    finally:
        _retire(engine, worker_id, defunct)
        engine.dispose()
    if defunct:
        return EX_DEFUNCT
    return 0 if consumed and not worker.failed else EX_FAILED


def _enrol(engine: Engine, worker_id: UUID, model: str, settings: Settings) -> None:
    """Put this worker on the list, once the database is there: parts may be started in any order."""
    while True:
        try:
            enrol(engine, worker_id, model, socket.gethostname(), os.getpid(), settings.chunk_slots, settings.lease)
        except PASSING as error:
            log.warning("database_away", error=type(error.orig).__name__)
            time.sleep(DATABASE_PAUSE)
        else:
            return


def _retire(engine: Engine, worker_id: UUID, defunct: bool) -> None:
    """The last word of this worker. Where the database does not hear it, the lease tells."""
    try:
        close_epochs(engine, worker_id)
        retire(engine, worker_id, defunct=defunct)
    except PASSING as error:
        log.warning("database_away", error=type(error.orig).__name__)


def consume(settings: Settings, model: str, worker: GpuWorker, slots: int) -> bool:
    """Answer the bells of one model until the process is told to stop. False when consuming failed instead."""
    broker: Celery = make_broker(settings.redis_url, patience=BROKER_PATIENCE)
    add_tasks(broker, worker)

    def drain(**_: object) -> None:
        worker.drain(settings.drain)

    worker_shutting_down.connect(drain, weak=False)
    setup_logging.connect(_keep_logs, weak=False)
    vars(sys)["__stdout__"] = None  # where Celery prints that it stops: not a line of JSON, and not to be switched off
    log.info("worker_ready")
    consumer = broker.Worker(
        pool="threads",
        concurrency=slots,
        queues=[hear_queue(model)],
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        consumer_cls=_Listener,
        loglevel="WARNING",
        quiet=True,
    )
    consumer.start()
    return not consumer.exitcode


class _Listener(Consumer):  # type: ignore[misc]  # Celery is untyped
    """Celery's consumer, which a message that is no bell does not end: it is dropped."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.channel_errors += UNREADABLE  # in what is no message at all: it is off the queue by then, so go on anew

    def create_task_handler(self, *arguments: Any, **named: Any) -> Any:
        handle = super().create_task_handler(*arguments, **named)

        def answer(message: Any) -> None:
            try:
                handle(message)
            except UNREADABLE as error:
                log.warning("bell_unreadable", error=type(error).__name__)
                if not message.acknowledged:  # unless it is rejected it comes again with the next connection
                    message.reject()

        return answer


@contextmanager
def connected(loop: LoopThread, url: str) -> Iterator[SGLangRuntime]:
    """A client of the runtime at `url`, for the length of the block."""
    session = loop.run(_session())
    client = SGLangRuntime(session, url)
    try:
        yield client
    finally:
        loop.run(client.aclose())
        loop.run(session.close())


async def _session() -> aiohttp.ClientSession:
    return open_session()


def _launch(
    model: FleetModel, settings: Settings, worker_id: UUID, classifies: bool, cancelled: threading.Event
) -> LaunchedRuntime:
    """Start a server of the model on a free port, with a log of this worker's own. Raises LaunchFailed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return launch(
        model,
        port=port,
        log=(settings.runtime_logs / f"{model.name}-{worker_id}.log").absolute(),
        classifies=classifies,
        start_s=settings.runtime_start,
        cancelled=cancelled,
    )


def _keep_logs(**_: object) -> None:
    """That somebody listens keeps Celery from setting up logs of its own."""


def _leave(*_: object) -> None:
    """Stop in order although nothing consumes yet."""
    sys.exit(0)


def _record_epoch(engine: Engine, worker_id: UUID, model: FleetModel, template: str | None, start: Start) -> UUID:
    epoch_id = new_id()
    open_epoch(
        engine,
        Epoch(
            id=epoch_id,
            worker_id=worker_id,
            model=model.name,
            weights=model.weights,
            revision=model.revision,
            weights_hash=weights_hash(model.weights, model.revision),
            template_hash=template,
            runtime_version=start.info.version,
            launch_flags=start.command,
            server_info=dict(start.info.server_args),
        ),
    )
    return epoch_id


def _stop_consuming() -> None:
    """Have Celery stop in order, from any thread."""
    celery_state.should_stop = os.EX_SOFTWARE
