"""Executing a claimed chunk: ask what is open, take in what comes back, write it down in batches.

Guarantee: what was written is never asked again; what could not be written yet is kept and written later, or given up
only when the chunk is no longer ours, or a lease has passed in vain after an interrupt. SQL and tokenising happen in
the chunk's own thread, calls on the carrier's event loop.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from services.foundation.database import PASSING, transaction
from services.foundation.errors import Fenced
from services.jobs.answer import Answer, Carrier
from services.jobs.asking import Asked, Asking, Line
from services.jobs.briefs import BRIEFS
from services.jobs.claim import Claim
from services.jobs.deaths import condemned, evidence
from services.jobs.docket import Case
from services.jobs.measure import Anchors
from services.jobs.meter import Ending, Meter
from services.jobs.record import Batch, Recorder, spent_on
from services.jobs.rows import settled_row, trace_row
from services.judging.heard import Heard, unanswered
from services.judging.judge import Judge, Question
from services.judging.prompt import Prompt
from services.judging.runtime import RuntimeUnavailable
from services.vocabulary import ItemError, Outcome, Stage

log = structlog.get_logger(__name__)

FLUSH_CALLS = 64
FLUSH_EVERY = 0.25  # seconds
DATABASE_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Session:
    """Everything that hearing one chunk needs.

    `interrupted` says when to stop: the job no longer wants this chunk, or it must not go on here. Then the
    database may be away for `lease` seconds: by then the chunk is rescued, or can be. `confirm` is there where the
    runtime may be started anew unseen, and what is written must be of one start: it raises RuntimeUnavailable unless
    the one that answers now is still in the epoch.
    """

    engine: Engine
    held: Claim
    judge: Judge
    epoch_id: UUID
    anchors: Anchors
    carrier: Carrier
    interrupted: Callable[[], bool]
    confirm: Callable[[], None] | None
    lease: float
    public_url: str
    keep_prompts: bool
    meter: Meter


def hear_chunk(session: Session) -> RuntimeUnavailable | None:
    """Hear a claimed chunk to its end, or until it is interrupted or the runtime is away, which is then returned.

    Raises Fenced when the chunk turns out to be another's, one of `PASSING` when the database was away.
    """
    return _Chunk(session).hear()


class _Chunk:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._held = session.held
        self._brief = BRIEFS[session.held.stage]
        self._recorder = Recorder(session.engine, session.held, session.public_url)
        self._batch = Batch()
        self._writing: Batch | None = None  # a batch whose commit failed, or went through without an answer
        self._flushed_at = time.monotonic()
        self._concluding_since: float | None = None

    def hear(self) -> RuntimeUnavailable | None:
        """See hear_chunk."""
        away: RuntimeUnavailable | None = None
        try:
            self._get_ready()
            cases = self._open()
            away = self._work_off(cases)
            self._asking.hang_up()
            if all(case.closed for case in cases):
                self._conclude(self._recorder.end, Ending.FINISHED)
            else:
                self._conclude(self._recorder.release, Ending.RELEASED)
        except Fenced:
            raise
        except PASSING:
            self._conclude(self._recorder.release, Ending.RELEASED)
            raise
        except Exception:
            self._hang_up()
            # what was not written may be what cannot be, and is heard again: at last item by item, each alone
            self._writing, self._batch = None, Batch()
            if condemned(self._held):
                self._give_up()
            else:
                self._conclude(partial(self._recorder.release, died=True), Ending.DIED)
            raise
        finally:
            self._hang_up()
        return away

    def _hang_up(self) -> None:
        self._session.carrier.hang_up(self._held.claim_id)

    def _get_ready(self) -> None:
        session, held = self._session, self._held
        self._settings = json.loads(held.settings)
        self._sampling = self._brief.sampling(self._settings, session.judge)
        self._line = Line(
            held.claim_id, held.priority, session.judge, self._sampling, session.carrier, session.interrupted
        )
        self._asking = Asking(self._line, self._take_down, self._flush_if_due)

    def _work_off(self, cases: Sequence[Case[Any]]) -> RuntimeUnavailable | None:
        away = self._measure(cases)
        if away is not None or self._session.interrupted():
            return away
        if condemned(self._held):
            self._condemn(cases)
            return None
        self._asking.work_off(cases)
        return self._asking.away or self._close_confirmed(cases)

    def _close_confirmed(self, cases: Sequence[Case[Any]]) -> RuntimeUnavailable | None:
        """Write down what was held back until it was known to be of the epoch; else it is dropped, and asked again."""
        if self._session.confirm is None:
            return None
        try:
            self._session.confirm()
        except RuntimeUnavailable as away:
            return away
        for case in cases:
            self._close_if_ended(case)
        return None

    def _condemn(self, cases: Sequence[Case[Any]]) -> None:
        """Ask nothing more of an item at which workers or runtimes die: each of its open calls is poisoned."""
        told = self._evidence()
        unasked = Question(Prompt([], "", refused=told), sampling=None)
        for case in cases:
            while due := case.proceeding.open_calls():
                for key in due:
                    heard = unanswered(Outcome.POISONED, sent=False)
                    case.proceeding.record(key, heard)
                    self._take_down(Asked(case, key, unasked), heard, None)
            self._close_if_ended(case)

    def _give_up(self) -> None:
        """End a condemned item at which even that cannot be worked out: without a word of its judge."""
        batch, told = Batch(), self._evidence()
        if self._held.settles:
            failed = {"code": ItemError.POISONED, "message": told}
            with transaction(self._session.engine) as connection:
                spent = spent_on(connection, self._held.job_id, self._held.first_seq)
            batch.verdicts.append(settled_row(self._held.job_id, self._held.first_seq, spent, error=failed))
        self._batch = batch
        self._conclude(self._recorder.end, Ending.DIED)

    def _evidence(self) -> str:
        with transaction(self._session.engine) as connection:
            told = evidence(connection, self._held.key)
        log.error("item_condemned", seq=self._held.first_seq, evidence=told)
        return told

    def _measure(self, cases: Sequence[Case[Any]]) -> RuntimeUnavailable | None:
        """Before a committee's scores come its anchors', if there is anything to score."""
        if self._held.stage is not Stage.SCORE or all(case.closed for case in cases):
            return None
        return self._session.anchors.measure(self._line, self._settings["committee"], self._session.confirm)

    def _open(self) -> list[Case[Any]]:
        """The chunk's open cases; one whose last call was flushed without what it came to is closed at once."""
        session = self._session
        with transaction(session.engine) as connection:
            cases = self._brief.open(connection, self._held, self._settings, session.judge)
        for case in cases:
            self._close_if_ended(case)
        return cases

    def _take_down(self, asked: Asked, heard: Heard, answer: Answer | None) -> None:
        """Add one heard call to the batch, and what the item came to when it was the last."""
        case = asked.case
        row = trace_row(
            self._held,
            case.seq,
            asked.key,
            case.proceeding.seating(asked.key),
            self._session.judge.protocol,
            asked.question,
            self._sampling,
            heard,
            answer,
            self._session.epoch_id,
            keep_prompt=self._session.keep_prompts,
        )
        batch = case.held_back if self._brief.whole else self._batch
        batch.add_trace(row, heard, sent=answer is not None)
        self._session.meter.heard(heard)
        if self._session.confirm is None:
            self._close_if_ended(case)

    def _close_if_ended(self, case: Case[Any]) -> None:
        if case.closed or not case.proceeding.ended:
            return
        case.closed = True
        self._batch.take(case.held_back)
        self._brief.close(self._held, case, self._session.epoch_id, self._batch)

    def _flush_if_due(self) -> None:
        full = len(self._batch.traces) >= FLUSH_CALLS
        if not full and time.monotonic() - self._flushed_at < FLUSH_EVERY:
            return
        try:
            self._flush()
        except PASSING as error:
            self._put_off("flush_postponed", error)
        self._flushed_at = time.monotonic()

    def _flush(self) -> None:
        """Write what is there. After a database error the same batch is written first the next time, unchanged."""
        if self._writing is None:
            self._writing, self._batch = self._batch, Batch()
        self._write(self._recorder.flush, self._writing)
        self._writing = None

    def _write(self, write: Callable[[Batch], object], batch: Batch) -> None:
        began = time.monotonic()
        write(batch)
        if batch:
            self._session.meter.written(batch.rows, time.monotonic() - began)

    def _put_off(self, event: str, error: DBAPIError) -> None:
        name = type(error.orig).__name__
        log.warning(event, error=name)
        self._session.meter.not_written(name)

    def _conclude(self, write: Callable[[Batch], object], ending: Ending) -> None:
        """Write the rest and give the chunk up, however long the database takes: until then nobody else has it.

        Raises the database's error where that lasts for a lease although the hearing is interrupted.
        """
        self._concluding_since = self._concluding_since or time.monotonic()
        while True:
            try:
                if self._writing is not None:
                    self._flush()
                self._write(write, self._batch)
            except PASSING as error:
                self._put_off("conclusion_postponed", error)
                if self._session.interrupted() and time.monotonic() - self._concluding_since >= self._session.lease:
                    raise
                time.sleep(DATABASE_PAUSE)
            else:
                log.info("chunk_let_go", ending=ending)
                self._session.meter.let_go(ending)
                return
