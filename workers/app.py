"""The composition root of a GPU worker: runtime, judge, event loop, lease and queue are put together here.

Guarantee: it consumes only once its runtime answers, and only its own model's queue. However it ends in order, its
chunks are handed back, its lease is given up and the runtime that it launched is stopped.
"""

import asyncio
import math
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import UUID

import aiohttp
import structlog
from celery import Celery
from celery.signals import worker_shutting_down
from celery.worker import state as celery_state
from sqlalchemy import Engine

from services.foundation.broker import hear_queue, make_broker
from services.foundation.database import make_engine, worker_sessions
from services.foundation.errors import Misconfigured
from services.foundation.fleet import FleetModel, load_fleet
from services.foundation.identifiers import new_id
from services.foundation.settings import Settings
from services.jobs.lease import Epoch, close_epochs, enrol, open_epoch, retire
from services.judging.judge import Judge
from services.judging.runtime import Call, CallRefused, RuntimeFault, RuntimeUnavailable
from workers.gpu import EXPRESS_SLOTS, GpuWorker
from workers.runtime.client import RuntimeInfo, SGLangRuntime, open_session
from workers.runtime.gate import Gate
from workers.runtime.launch import LaunchedRuntime, LaunchFailed, launch
from workers.runtime.tokenizer import load_tokenizer, template_hash, vocabulary_size, weights_hash
from workers.switchboard import LoopThread, Switchboard
from workers.tasks import add_tasks

log = structlog.get_logger(__name__)

BROKER_PATIENCE = 15.0
FIRST_ANSWER = 120.0  # seconds
# Calls that wait in the runtime's own queue, as a share of those it runs: it should always have the next one at hand.
# No more than its queue takes (`launch.DEFAULT_FLAGS`): the others wait in the gate, where priorities count.
BACKLOG = 0.25
LONGEST_BACKLOG = 100


class PinnedRuntime:
    """The server that this worker is pinned to: launched here, or attached to by its url."""

    def __init__(self, client: SGLangRuntime, loop: LoopThread, launched: LaunchedRuntime | None) -> None:
        self._client = client
        self._loop = loop
        self._launched = launched

    def alive(self) -> bool:
        """See WatchedRuntime."""
        return self._launched is None or self._launched.alive

    def info(self) -> RuntimeInfo:
        """See WatchedRuntime."""
        return self._loop.run(self._client.info())


def run_worker(settings: Settings, name: str) -> int:
    """Run the worker of model `name` to its end. Exit codes: 0 stopped in order, 1 its runtime failed.

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
    engine = make_engine(settings.database_url, worker_sessions(worker_id), pool_size=settings.chunk_slots + 4)
    slots = settings.chunk_slots + EXPRESS_SLOTS
    enrol(engine, worker_id, name, socket.gethostname(), os.getpid(), slots, settings.lease + settings.runtime_start)
    try:
        with started(model, settings, classifies=judge.classifies) as launched, LoopThread() as loop:
            url = launched.url if launched else model.url
            assert url is not None
            session = loop.run(_session())
            client = SGLangRuntime(session, url)
            info = loop.run(_introduced(client, model, settings.runtime_start))
            loop.run(_answered(client, judge.first_call(f"first-{worker_id}")))
            record = partial(_record_epoch, engine, worker_id, model, launched, template_hash(tokenizer))
            running = info.max_running_requests
            gate = Gate(running + min(math.ceil(running * BACKLOG), LONGEST_BACKLOG))
            switchboard = Switchboard(client, gate, loop.loop)
            worker = GpuWorker(
                settings,
                engine,
                worker_id,
                judge.within(info.context_length),
                switchboard,
                PinnedRuntime(client, loop, launched),
                record,
                stop=_stop_consuming,
            )
            log.info("worker_ready", worker=str(worker_id), runtime=info.version)
            try:
                consume(settings, name, worker, slots)
            finally:
                worker.close()
                loop.run(client.aclose())
                loop.run(session.close())
                close_epochs(engine, worker_id)
    except (LaunchFailed, RuntimeUnavailable, CallRefused):
        log.exception("runtime_failed_to_start")
        return 1
    finally:
        retire(engine, worker_id)
        engine.dispose()
    return 1 if worker.failed else 0


def consume(settings: Settings, model: str, worker: GpuWorker, slots: int) -> None:
    """Answer the bells of one model until the process is told to stop."""
    broker: Celery = make_broker(settings.redis_url, patience=BROKER_PATIENCE)
    add_tasks(broker, worker)

    def drain(**_: object) -> None:
        worker.drain(settings.drain)

    worker_shutting_down.connect(drain, weak=False)
    worker.start()
    broker.Worker(
        pool="threads",
        concurrency=slots,
        queues=[hear_queue(model)],
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel="WARNING",
        quiet=True,
    ).start()


@contextmanager
def started(model: FleetModel, settings: Settings, *, classifies: bool) -> Iterator[LaunchedRuntime | None]:
    """The runtime of a model, launched for the length of the block; None where the fleet names one to attach to."""
    if model.url is not None:
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log_file = Path(settings.runtime_logs) / f"{model.name}.log"
    launched = launch(model, port=port, log=log_file.absolute(), classifies=classifies, start_s=settings.runtime_start)
    try:
        yield launched
    finally:
        launched.stop()


async def _session() -> aiohttp.ClientSession:
    return open_session()


async def _introduced(client: SGLangRuntime, model: FleetModel, seconds: float) -> RuntimeInfo:
    """What the runtime says of itself, once it answers. Raises RuntimeUnavailable, and Misconfigured when it serves
    another model than the fleet file says."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        try:
            info = await client.info()
            break
        except RuntimeUnavailable:
            if loop.time() > deadline:
                raise
            await asyncio.sleep(1.0)
    if info.served_model not in {model.name, model.weights}:
        raise Misconfigured(f"the server of {model.name} serves {info.served_model}")
    return info


async def _answered(client: SGLangRuntime, call: Call) -> None:
    """Wait until the runtime has answered a first call. Raises RuntimeUnavailable, CallRefused."""
    try:
        await asyncio.wait_for(client.complete(call), FIRST_ANSWER)
    except TimeoutError as error:
        message = f"no answer to a first call of one token within {FIRST_ANSWER:g} s"
        raise RuntimeUnavailable(RuntimeFault.TIMED_OUT, message) from error


def _leave(*_: object) -> None:
    """Stop in order although nothing consumes yet."""
    sys.exit(0)


def _record_epoch(
    engine: Engine,
    worker_id: UUID,
    model: FleetModel,
    launched: LaunchedRuntime | None,
    template: str | None,
    info: RuntimeInfo,
) -> UUID:
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
            runtime_version=info.version,
            launch_flags=launched.command if launched else None,
            server_info=dict(info.server_args),
        ),
    )
    return epoch_id


def _stop_consuming() -> None:
    """Have Celery stop in order, from any thread."""
    celery_state.should_stop = os.EX_SOFTWARE
