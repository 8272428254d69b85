"""The supervisor of a worker's runtime: it launches it or attaches to it, watches it, and starts it anew.

Guarantee: `state` is READY only while the runtime answers as it should, judged by a call that it answered. A slow
runtime is never restarted, a launched one that has died, hangs or answers with garbage is, with pauses, until it has
failed too often. An attached one is only watched. A launched one has ended when `close` returns.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import structlog

from services.foundation.errors import Misconfigured
from services.judging.runtime import Call, CallRefused, RuntimeFault, RuntimeUnavailable
from services.vocabulary import FinishReason, WorkerState
from workers.runtime.client import RuntimeInfo, SGLangRuntime
from workers.runtime.health import LONGEST_PAUSE, Failures, Health, pause
from workers.runtime.launch import LaunchedRuntime, LaunchFailed
from workers.runtime.loop import LoopThread

log = structlog.get_logger(__name__)

LOOK = 1.0  # seconds between two looks at a runtime
STOP_GRACE = 15.0  # seconds that a runtime has to stop when its worker does
REFUSED = "refused"  # of a canary, beside the codes of `RuntimeFault`


class Failure(StrEnum):
    """Why a launched runtime is not left as it is."""

    ENDED = "ended"
    HUNG = "hung"
    BROKEN = "broken"


DEATHS = frozenset({Failure.ENDED, Failure.HUNG})  # what a call can do to a server


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the runtime. `number` counts them for this worker; `command` is None for an attached one."""

    number: int
    info: RuntimeInfo
    command: tuple[str, ...] | None


class Ward(Protocol):
    """Who uses the runtime, and is told what becomes of it."""

    def last_answer(self) -> float:
        """When the runtime last gave a good answer to an ordinary call, in seconds of the monotonic clock."""
        ...

    def bereaved(self, start: int) -> bool:
        """The runtime's start of that number, or one that never answered after it, died or is about to be killed as
        hung. Returns whether that counts against the runtime."""
        ...

    def deprived(self, start: int) -> None:
        """The runtime's start of that number is about to be replaced, as it answers with garbage: nobody's fault."""
        ...

    def forsaken(self) -> None:
        """There will be no runtime any more."""
        ...


class Supervisor:
    """Owns one runtime for a worker's life. `begin`, then `close`; both once.

    `launch` starts a server, and gives up when the event that it is given is set; None attaches to the client's url.
    `served` are the names by which the server may call its model, `canary` makes a call of one token with a given rid.
    """

    def __init__(
        self,
        client: SGLangRuntime,
        loop: LoopThread,
        launch: Callable[[threading.Event], LaunchedRuntime] | None,
        served: Collection[str],
        canary: Callable[[str], Call],
        patience: float,
        failures: int,
    ) -> None:
        self._client = client
        self._loop = loop
        self._launch = launch
        self._served = served
        self._canary_call = canary
        self._patience = patience
        self._failures = Failures(failures)
        self._state = WorkerState.STARTING
        self._start: Start | None = None
        self._server: LaunchedRuntime | None = None
        self._met = False  # whether the present server has been met
        self._meeting = threading.Lock()
        self._canary: asyncio.Task[RuntimeInfo | None] | None = None
        self._canaries = 0
        self._misfit: Misconfigured | None = None
        self._doubted = threading.Event()
        self._wake = threading.Event()
        self._settled = threading.Event()  # met for the first time, or never to be met
        self._draining = threading.Event()
        self._closed = threading.Event()
        # in a copy of the context, so that its log lines name the worker
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name="supervisor", daemon=True)

    @property
    def state(self) -> WorkerState:
        """STARTING, READY, UNHEALTHY, RESTARTING or DEFUNCT."""
        if self._state is WorkerState.READY and self._doubted.is_set():
            return WorkerState.UNHEALTHY
        return self._state

    @property
    def attached(self) -> bool:
        """Whether the runtime was there before us, and others may use it, too."""
        return self._launch is None

    @property
    def start(self) -> Start | None:
        """The start that answers now, or did last; None before the first."""
        return self._start

    def begin(self, ward: Ward) -> None:
        """Start or attach to the runtime, and watch it from now on."""
        self._ward = ward
        self._thread.start()

    def wait_until_met(self) -> bool:
        """Wait for the runtime's first good answer. False when there is no hope of one.

        Raises Misconfigured when it serves another model than the fleet file says.
        """
        self._settled.wait()
        if self._misfit is not None:
            raise self._misfit
        return self._start is not None

    def doubt(self, away: RuntimeUnavailable) -> None:
        """An ordinary call came back as from a runtime that is away: it must answer a canary before others go on."""
        log.warning("runtime_away", reason=away.code)
        self._doubted.set()
        self._wake.set()

    def confirm(self) -> None:
        """See that an attached server is still the one that was met last. A launched one cannot be another unseen.

        Raises RuntimeUnavailable.
        """
        if self._launch is None:
            self._meet(self._loop.run(self._introduced()))

    def drain(self) -> None:
        """Start no other runtime any more."""
        self._draining.set()

    def close(self) -> None:
        """Stop a launched runtime and return when it has ended. An attached one is left alone."""
        self._closed.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            if self._launch is None:
                self._watch(None, Health(self._patience, time.monotonic()))
            else:
                self._keep_running(self._launch)
        except Misconfigured as misfit:
            self._misfit = misfit
        except Exception:
            log.exception("supervisor_failed")
        finally:
            self._settled.set()
            if not (self._closed.is_set() or self._draining.is_set()):
                self._ward.forsaken()

    def _keep_running(self, launch: Callable[[threading.Event], LaunchedRuntime]) -> None:
        while not (self._closed.is_set() or self._draining.is_set()):
            counts = self._serve(launch)
            if self._closed.is_set() or self._draining.is_set():
                return
            seconds = self._failures.add() if counts else pause(0, LONGEST_PAUSE)
            if seconds is None:
                log.error("runtime_defunct")
                self._state = WorkerState.DEFUNCT
                return
            self._state = WorkerState.RESTARTING
            self._closed.wait(seconds)

    def _serve(self, launch: Callable[[threading.Event], LaunchedRuntime]) -> bool:
        """One server, from its start to its end. Returns whether that counts as a failure."""
        try:
            server = launch(self._closed)
        except LaunchFailed as failed:
            if not self._closed.is_set():
                log.warning("runtime_not_started", reason=failed.message, log=str(failed.log))
            return True
        grace = 0.0
        health = Health(self._patience, time.monotonic())
        try:
            self._client.url, self._server, self._met = server.url, server, False
            failure = self._watch(server, health)
            if failure is None:
                grace = STOP_GRACE
                return False
            log.error("runtime_failed", failure=failure, status=server.status(), log=str(server.log))
            self._state = WorkerState.UNHEALTHY
            self._failures.outlived(health.well_for)
            last = 0 if self._start is None else self._start.number
            if failure in DEATHS:
                return self._ward.bereaved(last)
            self._ward.deprived(last)
            return True
        finally:
            server.stop(grace)

    def _watch(self, server: LaunchedRuntime | None, health: Health) -> Failure | None:
        """Watch one server until it must be replaced, or for an attached one and until `close`, for ever."""
        try:
            while not self._closed.is_set():
                if server is not None and not server.alive:
                    return Failure.ENDED
                self._look(health)
                if health.hung and server is not None:
                    return Failure.HUNG
                if health.broken(time.monotonic()) and server is not None:
                    return Failure.BROKEN
                self._wake.wait(LOOK)
                self._wake.clear()
            return None
        finally:
            self._drop_canary()

    def _look(self, health: Health) -> None:
        now = time.monotonic()
        health.answered(self._ward.last_answer())
        if self._canary is None:
            if health.canary_due(now):
                self._send_canary(health)
        elif self._canary.done():
            self._hear_canary(health)
        elif health.look_due(now):
            health.looked(now, self._tokens())
        if health.hung and self._launch is None:  # it may be another server by now, which never got the canary
            self._drop_canary()
            self._fall_ill(health, Failure.HUNG)
        if self._doubted.is_set():
            health.doubted(now)
            if self._state is WorkerState.READY:
                self._state = WorkerState.UNHEALTHY
            self._doubted.clear()

    def _send_canary(self, health: Health) -> None:
        self._canaries += 1
        call = self._canary_call(f"canary-{self._canaries}")
        tokens = self._tokens()
        unknown = not health.well if self._launch is None else not self._met
        self._canary = self._loop.run(self._send(call, unknown))
        health.canary_sent(time.monotonic(), tokens)

    async def _send(self, call: Call, unknown: bool) -> asyncio.Task[RuntimeInfo | None]:
        task = asyncio.get_running_loop().create_task(self._ask(call, unknown))
        task.add_done_callback(lambda _: self._wake.set())
        return task

    async def _ask(self, call: Call, unknown: bool) -> RuntimeInfo | None:
        """Have a canary answered. Returns what the server says of itself, None where it is the one met before.

        An `unknown` one is asked first, as a server of another model could die of the call. Of a known one that is
        attached, an answer is not waited for in vain: busy with a long prompt it gives none.
        """
        info = await self._introduced() if unknown else None
        came = await self._client.complete(call)
        if came.finish_reason is FinishReason.ABORT:
            raise RuntimeUnavailable(RuntimeFault.FAILED, "the runtime aborted a canary by itself")
        if info is None and self._launch is None:
            with suppress(RuntimeUnavailable):
                info = await self._introduced()
        return info

    async def _introduced(self) -> RuntimeInfo:
        """What the server says of itself.

        Raises Misconfigured when the first serves another model than ours, RuntimeUnavailable when a later one does.
        """
        info = await self._client.info()
        if info.served_model not in self._served:
            message = f"the server at {self._client.url} serves {info.served_model}"
            if self._start is None:
                raise Misconfigured(message)
            raise RuntimeUnavailable(RuntimeFault.GARBLED, message)
        return info

    def _hear_canary(self, health: Health) -> None:
        assert self._canary is not None
        canary, self._canary = self._canary, None
        try:
            info = canary.result()
        except RuntimeUnavailable as error:
            self._fall_ill(health, error.code)
            return
        except CallRefused:
            self._fall_ill(health, REFUSED)
            return
        if info is not None:
            self._meet(info)
        health.canary_answered(time.monotonic())
        if self._state is not WorkerState.READY:
            log.info("runtime_ready")
            self._state = WorkerState.READY
        self._settled.set()

    def _fall_ill(self, health: Health, reason: str) -> None:
        """`reason` is a code: what a server says in words may hold a secret or a caller's text, and is not logged."""
        health.canary_failed(time.monotonic())
        if self._state is not WorkerState.UNHEALTHY:
            log.warning("runtime_unhealthy", reason=reason)
            self._state = WorkerState.UNHEALTHY

    def _meet(self, info: RuntimeInfo) -> None:
        """Know the server that said this of itself: the attached one that was met last, or another start."""
        with self._meeting:
            last, server = self._start, self._server
            if server is not None:
                self._met = True
                server.note_shared_memory()
            elif last is not None and info.start == last.info.start:
                return
            number = 1 if last is None else last.number + 1
            self._start = Start(number, info, None if server is None else server.command)
            if server is None and last is not None:  # after that: from here on nothing is claimed for the old one
                self._ward.bereaved(last.number)

    def _tokens(self) -> float | None:
        try:
            return self._loop.run(self._client.tokens())
        except (RuntimeUnavailable, CallRefused):
            return None

    def _drop_canary(self) -> None:
        if self._canary is not None:
            self._loop.run(_cancelled(self._canary))
            self._canary = None


async def _cancelled(task: asyncio.Task[RuntimeInfo | None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
