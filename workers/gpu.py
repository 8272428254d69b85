"""A GPU worker: pinned to one runtime, it claims chunks of its one model and hears them until there are no more.

Guarantee: it never hears for another model. While it drains or its runtime is away it claims nothing. What it holds is
finished, handed back, or rescued after its lease: never lost.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import structlog
from sqlalchemy import Engine

from services.foundation.database import PASSING
from services.foundation.errors import Fenced
from services.foundation.identifiers import shown
from services.foundation.settings import Settings
from services.jobs.claim import Claim, ClaimKey, claim
from services.jobs.execute import Session, hear_chunk
from services.jobs.lease import disown, held_claims, renew
from services.jobs.measure import Anchors
from services.judging.judge import Judge
from services.judging.runtime import RuntimeUnavailable
from services.vocabulary import Priority, WorkerState
from workers.runtime.client import RuntimeInfo
from workers.switchboard import Switchboard

log = structlog.get_logger(__name__)

EXPRESS_SLOTS = 2  # beyond the chunk slots, for interactive work alone
LOOK = 1.0  # seconds between two looks for cancels and deadlines


class WatchedRuntime(Protocol):
    """What a worker must know of its runtime beyond the port."""

    def alive(self) -> bool:
        """False once a launched server's process has ended: it will not come back by itself."""
        ...

    def info(self) -> RuntimeInfo:
        """What it says of itself now. Raises RuntimeUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Epoch:
    """One start of the runtime: its row, the name that the server gives it, and the anchors measured in it."""

    id: UUID
    start: str
    anchors: Anchors


@dataclass(slots=True)
class Slot:
    """A chunk being heard, and whether that should stop."""

    held: Claim
    interrupted: bool = False


class GpuWorker:
    """One worker. `hear` runs in as many threads as there are slots."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        worker_id: UUID,
        judge: Judge,
        switchboard: Switchboard,
        runtime: WatchedRuntime,
        record_epoch: Callable[[RuntimeInfo], UUID],
        stop: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._worker_id = worker_id
        self._judge = judge
        self._switchboard = switchboard
        self._runtime = runtime
        self._record_epoch = record_epoch
        self._epoch: Epoch | None = None
        self._looking = threading.Lock()
        self._stop = stop
        self.failed = False  # whether this worker had to stop by itself
        self._slots: dict[ClaimKey, Slot] = {}
        self._lock = threading.Lock()
        self._tokens = 0
        self._draining = threading.Event()
        self._lost = threading.Event()  # the runtime is away: claim nothing until it is back
        self._ended = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="pulse", daemon=True)

    @property
    def state(self) -> WorkerState:
        """Where this worker stands, as its heartbeat tells it."""
        if self._draining.is_set():
            return WorkerState.DRAINING
        return WorkerState.UNHEALTHY if self._lost.is_set() else WorkerState.READY

    def start(self) -> None:
        """Exchange the long lease of the start for an ordinary one, and begin the heartbeat."""
        self._look_at_start()
        self._renew(1.0)
        self._pulse.start()

    def drain(self, grace: float) -> None:
        """Claim nothing any more; have what still runs after `grace` seconds aborted and handed back. Does not wait."""
        self._draining.set()
        threading.Thread(target=self._end_grace, args=(grace,), name="drain", daemon=True).start()

    def close(self) -> None:
        """End the heartbeat."""
        self._ended.set()
        self._pulse.join()

    def hear(self, model: str) -> None:
        """Answer a bell: claim and hear until nothing is claimable, then return."""
        if model != self._judge.name:
            log.error("bell_for_another_model", model=model, own=self._judge.name)
            return
        while not (self._draining.is_set() or self._lost.is_set()):
            try:
                if self._judge.classifies:  # whose scores are all of one start, so that it must be known
                    self._look_at_start()
                slot = self._take()
            except RuntimeUnavailable as away:
                self._lose(away)
                return
            except PASSING as error:  # nothing was taken, or its lease tells; the next bell tries again
                log.warning("database_away", error=type(error.orig).__name__)
                return
            if slot is None:
                return
            try:
                self._hear(slot)
            finally:
                with self._lock:
                    del self._slots[slot.held.claim_key]

    def _take(self) -> Slot | None:
        with self._lock:  # so that no more than the chunk slots hold standard work, and none is taken while draining
            if self._draining.is_set():
                return None
            least = Priority.BULK if len(self._slots) < self._settings.chunk_slots else Priority.INTERACTIVE
            held = claim(self._engine, self._worker_id, self._judge.name, least)
            if held is None:
                return None
            slot = Slot(held)
            self._slots[held.claim_key] = slot
            return slot

    def _hear(self, slot: Slot) -> None:
        held, epoch = slot.held, self._epoch
        assert epoch is not None
        with structlog.contextvars.bound_contextvars(
            job=shown("job", held.job_id), chunk=f"{held.stage}/{held.ordinal}.{held.part}", fence=held.fence
        ):
            session = Session(
                engine=self._engine,
                held=held,
                judge=self._judge,
                epoch_id=epoch.id,
                anchors=epoch.anchors,
                carrier=self._switchboard,
                interrupted=lambda: slot.interrupted,
                public_url=self._settings.public_url,
                keep_prompts=self._settings.trace_prompts == "text",
            )
            try:
                runtime_away = hear_chunk(session)
            except Fenced as error:
                log.warning("chunk_fenced", reason=error.message)
                return
            if runtime_away is not None:
                self._lose(runtime_away)

    def _lose(self, away: RuntimeUnavailable) -> None:
        log.warning("runtime_away", reason=str(away))
        self._lost.set()

    def _look_at_start(self) -> None:
        """Whether the runtime is still the one that was started; another start is another epoch.

        Raises RuntimeUnavailable.
        """
        info = self._runtime.info()
        with self._looking:
            if self._epoch is None or self._epoch.start != info.start:
                epoch_id = self._record_epoch(info)
                self._epoch = Epoch(epoch_id, info.start, Anchors(self._engine, epoch_id))
                log.info("epoch_opened", epoch=str(epoch_id), runtime=info.version)

    def _beat(self) -> None:
        """Look for cancels and deadlines each second, renew the lease each heartbeat, watch the runtime."""
        try:
            self._beat_until_ended()
        except Exception:
            log.exception("pulse_failed")  # without a pulse this worker would lose every chunk that it claims
            self._fail()

    def _beat_until_ended(self) -> None:
        beat = time.monotonic()
        while not self._ended.wait(LOOK):
            try:
                self._look()
                if time.monotonic() - beat >= self._settings.heartbeat:
                    self._renew(time.monotonic() - beat)
                    beat = time.monotonic()
            except PASSING as error:  # the lease may lapse meanwhile: then the fence tells
                log.warning("database_away", error=type(error.orig).__name__)
            if not self._runtime.alive():
                log.error("runtime_ended")
                self._fail()
                return
            if self._lost.is_set() and self._back():
                log.info("runtime_back")
                self._lost.clear()

    def _back(self) -> bool:
        """Whether the runtime answers again; it may have been started anew."""
        try:
            self._look_at_start()
        except RuntimeUnavailable:
            return False
        return True

    def _look(self) -> None:
        with self._lock:  # no claim is under way: what is held and has no slot, nobody hears
            held = held_claims(self._engine, self._worker_id)
            for claimed, slot in self._slots.items():
                slot.interrupted |= not held.get(claimed, False)
            for claimed in held.keys() - self._slots.keys():
                log.warning("claim_disowned", job=shown("job", claimed.job_id), ordinal=claimed.ordinal)
                disown(self._engine, self._worker_id, claimed)

    def _renew(self, elapsed: float) -> None:
        written, self._tokens = self._switchboard.completion_tokens - self._tokens, self._switchboard.completion_tokens
        running = self._switchboard.running
        renew(self._engine, self._worker_id, self._settings.lease, self.state, running, written / elapsed)

    def _fail(self) -> None:
        self.failed = True
        self.drain(grace=0)
        self._stop()

    def _end_grace(self, grace: float) -> None:
        self._ended.wait(grace)
        with self._lock:
            for slot in self._slots.values():
                slot.interrupted = True
