"""A GPU worker: pinned to one runtime, it claims chunks of its one model and hears them until there are no more.

Guarantee: it never hears for another model. While it drains or its runtime is not well it claims nothing. What it holds
is finished, handed back, or rescued after its lease: never lost.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog
from sqlalchemy import Engine

from services.foundation.database import PASSING
from services.foundation.errors import Fenced
from services.foundation.identifiers import shown
from services.foundation.settings import Settings
from services.jobs.claim import Claim, ClaimKey, claim
from services.jobs.deaths import tell_of_runtime
from services.jobs.execute import Session, hear_chunk
from services.jobs.lease import disown, held_claims, renew
from services.jobs.measure import Anchors
from services.jobs.meter import Ending
from services.judging.judge import Judge
from services.judging.runtime import RuntimeFault, RuntimeUnavailable
from services.vocabulary import Priority, WorkerState
from workers.metrics import WorkerMetrics
from workers.runtime.supervisor import Start, Supervisor
from workers.switchboard import Switchboard

log = structlog.get_logger(__name__)

EXPRESS_SLOTS = 2  # beyond the chunk slots, for interactive work alone
OLDEST_EVERY = 8  # of this many chunks that fill the chunk slots, one is of the oldest job, whatever its class
LOOK = 1.0  # seconds between two looks for cancels and deadlines


@dataclass(frozen=True, slots=True)
class Epoch:
    """One start of the runtime: its row, its number, the judge that asks no more than it takes, its anchors.

    `opened_at` is on the monotonic clock.
    """

    id: UUID
    start: int
    judge: Judge
    anchors: Anchors
    opened_at: float


@dataclass(slots=True)
class Slot:
    """A chunk being heard, in which epoch, whether that should stop, and whether any of its calls may be under way."""

    held: Claim
    epoch: Epoch
    interrupted: bool = False
    in_flight: bool = True


class GpuWorker:
    """One worker. `hear` runs in as many threads as there are slots."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        worker_id: UUID,
        judge: Judge,
        switchboard: Switchboard,
        runtime: Supervisor,
        record_epoch: Callable[[Start], UUID],
        stop: Callable[[], None],
        metrics: WorkerMetrics,
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
        self._metrics = metrics
        self.failed = False  # whether this worker had to stop by itself
        self._slots: dict[ClaimKey, Slot] = {}
        self._stranded: dict[ClaimKey, Slot] = {}  # broken off by the runtime, which may have died of one of them
        self._lock = threading.Lock()
        self._tokens = 0
        self._claims = 0  # into the chunk slots
        self._others_until = -math.inf  # on the monotonic clock: until then others are heard than suspects
        self._leased_until = -math.inf  # on this process's monotonic clock
        self._draining = threading.Event()
        self._ended = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="pulse", daemon=True)

    @property
    def state(self) -> WorkerState:
        """Where this worker stands, as its heartbeat tells it."""
        return WorkerState.DRAINING if self._draining.is_set() else self._runtime.state

    def start(self) -> None:
        """Begin the heartbeat, and have the runtime started."""
        self._pulse.start()
        self._runtime.begin(self)

    def drain(self, grace: float) -> None:
        """Claim nothing any more; have what still runs after `grace` seconds aborted and handed back. Does not wait."""
        self._draining.set()
        self._runtime.drain()
        threading.Thread(target=self._end_grace, args=(grace,), name="drain", daemon=True).start()

    def close(self) -> None:
        """End the heartbeat."""
        self._ended.set()
        self._pulse.join()

    def hear(self, model: str) -> None:
        """Answer a bell: claim and hear until nothing is claimable, then return."""
        structlog.contextvars.bind_contextvars(worker=str(self._worker_id))
        if model != self._judge.name:
            log.error("bell_for_another_model", model=model, own=self._judge.name)
            return
        while self.state is WorkerState.READY:
            try:
                if self._judge.classifies:  # whose scores are all of one start, so that it must be known
                    self._runtime.confirm()
                slot = self._take(self._keep_epoch())
            except RuntimeUnavailable as away:
                self._runtime.doubt(away)
                return
            except PASSING as error:  # nothing was taken, or its lease tells; the next bell tries again
                log.warning("database_away", error=type(error.orig).__name__)
                return
            if slot is None:
                return
            began = time.monotonic()
            try:
                self._hear(slot)
            except PASSING as error:  # it was given back, or its lease tells
                log.warning("database_away", error=type(error.orig).__name__)
                return
            finally:
                with self._lock:
                    del self._slots[slot.held.claim_key]
                    if slot.held.alone:
                        self._others_until = 2 * time.monotonic() - began

    def _take(self, epoch: Epoch) -> Slot | None:
        with self._lock:  # so that no more than the chunk slots hold standard work, and none is taken while draining
            if time.monotonic() >= self._leased_until:  # what it claimed now would be taken from it at once
                return None
            start = self._runtime.start
            if start is None or start.number != epoch.start:  # another one answers by now
                return None
            if self.state is not WorkerState.READY or any(slot.held.alone for slot in self._slots.values()):
                return None
            self._stranded.clear()  # the runtime has outlived them
            least = Priority.BULK if len(self._slots) < self._settings.chunk_slots else Priority.INTERACTIVE
            oldest = least is Priority.BULK and self._claims % OLDEST_EVERY == OLDEST_EVERY - 1
            held = claim(
                self._engine,
                self._worker_id,
                self._judge.name,
                least,
                oldest=oldest,
                suspects_first=self._suspects_first(epoch),
                beside=bool(self._slots),
                shared=self._runtime.attached,
            )
            if held is None:
                return None
            self._claims += least is Priority.BULK
            slot = Slot(held, epoch)
            self._slots[held.claim_key] = slot
            self._metrics.claimed()
            return slot

    def _hear(self, slot: Slot) -> None:
        held, epoch = slot.held, slot.epoch
        with structlog.contextvars.bound_contextvars(epoch=str(epoch.id), **_named(held.claim_key)):
            session = Session(
                engine=self._engine,
                held=held,
                judge=epoch.judge,
                epoch_id=epoch.id,
                anchors=epoch.anchors,
                carrier=self._switchboard,
                interrupted=lambda: slot.interrupted,
                confirm=partial(self._confirm, slot) if epoch.judge.classifies and self._runtime.attached else None,
                lease=self._settings.lease,
                public_url=self._settings.public_url,
                keep_prompts=self._settings.trace_prompts == "text",
                meter=self._metrics,
            )
            try:
                runtime_away = hear_chunk(session)
            except Fenced as error:
                log.warning("chunk_fenced", reason=error.message)
                self._metrics.let_go(Ending.FENCED)
                return
            if runtime_away is not None:
                with self._lock:  # so that no claim comes between
                    if slot.in_flight and not slot.interrupted:
                        self._stranded[held.claim_key] = slot
                    self._runtime.doubt(runtime_away)

    def _confirm(self, slot: Slot) -> None:
        """See Session. Whatever it finds is not charged to this chunk: all that it asked has been answered."""
        slot.in_flight = False
        self._runtime.confirm()
        slot.in_flight = True
        start = self._runtime.start
        if start is None or start.number != slot.epoch.start:
            raise RuntimeUnavailable(RuntimeFault.FAILED, "the runtime was started anew")

    def last_answer(self) -> float:
        """See Ward."""
        return self._switchboard.answered_at

    def bereaved(self, start: int) -> bool:
        """See Ward. It does not count where something is charged that was there before, or ran alone: then that is
        suspected."""
        flights = [(slot.held, slot.epoch.id) for slot in self._break_off(start)]
        log.warning("runtime_died", in_flight=[_named(held.claim_key) for held, _ in flights])
        if self._draining.is_set():  # it may have been told to stop, as we were
            return True
        charged = tell_of_runtime(self._engine, flights)
        return not (charged and any(held.alone or held.deaths for held, _ in flights))

    def deprived(self, start: int) -> None:
        """See Ward."""
        self._break_off(start)

    def forsaken(self) -> None:
        """See Ward."""
        self._fail()

    def _break_off(self, start: int) -> list[Slot]:
        """Let nothing that was begun on this start of the runtime, or an earlier one, go on with the next.

        Returns what was in flight there until now.
        """
        with self._lock:
            running = [slot for slot in self._slots.values() if slot.epoch.start <= start and not slot.interrupted]
            for slot in running:
                slot.interrupted = True
            flying = [slot for slot in running if slot.in_flight]
            lost = {slot.held.claim_key: slot for slot in (*self._stranded.values(), *flying)}
            self._stranded.clear()
        return [*lost.values()]

    def _suspects_first(self, epoch: Epoch) -> bool:
        """Whether what must run alone comes before all else: not before the runtime's present start has shown that it
        can answer, and not so that more than half of the time goes to that."""
        return self._switchboard.answered_at > epoch.opened_at and time.monotonic() >= self._others_until

    def _keep_epoch(self) -> Epoch:
        """The epoch of the runtime's present start, opened when it is another than before."""
        start = self._runtime.start
        assert start is not None
        with self._looking:
            if self._epoch is None or self._epoch.start != start.number:
                if self._epoch is not None:
                    self._metrics.restarted(start.number - self._epoch.start)
                epoch_id = self._record_epoch(start)
                judge = self._judge.within(start.info.context_length)
                self._switchboard.resize(start.info.max_running_requests)
                self._epoch = Epoch(epoch_id, start.number, judge, Anchors(self._engine, epoch_id), time.monotonic())
                log.info("epoch_opened", epoch=str(epoch_id), runtime=start.info.version)
            return self._epoch

    def _beat(self) -> None:
        """Look for cancels and deadlines each second, renew the lease each heartbeat and when the state changes."""
        structlog.contextvars.bind_contextvars(worker=str(self._worker_id))
        try:
            self._beat_until_ended()
        except Exception:
            log.exception("pulse_failed")  # without a pulse this worker would lose every chunk that it claims
            self._fail()

    def _beat_until_ended(self) -> None:
        beat, told = time.monotonic(), WorkerState.STARTING
        while not self._ended.wait(LOOK):
            try:
                state = self.state
                if state is not told or time.monotonic() - beat >= self._settings.heartbeat:
                    self._renew(state, time.monotonic() - beat)  # first: the others wait for claims under way
                    beat, told = time.monotonic(), state
                self._look()
                if state is WorkerState.READY:
                    self._keep_epoch()
            except PASSING as error:  # the lease may lapse meanwhile: then the fence tells
                log.warning("database_away", error=type(error.orig).__name__)

    def _look(self) -> None:
        with self._lock:  # no claim is under way: what is held and has no slot, nobody hears
            held = held_claims(self._engine, self._worker_id)
            for claimed, slot in self._slots.items():
                slot.interrupted |= not held.get(claimed, False)
            for claimed in held.keys() - self._slots.keys():
                log.warning("claim_disowned", **_named(claimed))
                disown(self._engine, self._worker_id, claimed)

    def _renew(self, state: WorkerState, elapsed: float) -> None:
        written, self._tokens = self._switchboard.completion_tokens - self._tokens, self._switchboard.completion_tokens
        running, sent = self._switchboard.running, time.monotonic()
        renew(self._engine, self._worker_id, self._settings.lease, state, running, written / elapsed)
        self._leased_until = sent + self._settings.lease  # no later than on the database's clock

    def _fail(self) -> None:
        self.failed = True
        self.drain(grace=0)
        self._stop()

    def _end_grace(self, grace: float) -> None:
        self._ended.wait(grace)
        with self._lock:
            for slot in self._slots.values():
                slot.interrupted = True


def _named(claimed: ClaimKey) -> dict[str, object]:
    """How log lines name a claim."""
    return {
        "job": shown("job", claimed.job_id),
        "chunk": f"{claimed.stage}/{claimed.ordinal}.{claimed.part}",
        "fence": claimed.fence,
    }
