"""Executing a claimed chunk: ask what is open, read what comes back, write it down in batches.

Guarantee: what was written is never asked again; what could not be written yet is kept and written later, or given up
only when the chunk is no longer ours. SQL and tokenising happen in the chunk's own thread, calls on the carrier's event
loop.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from uuid import UUID

import structlog
from sqlalchemy import Engine

from services.foundation.database import PASSING, transaction
from services.foundation.errors import Fenced
from services.jobs.answer import Answer, Carrier
from services.jobs.claim import Claim, load
from services.jobs.docket import Case, open_cases
from services.jobs.record import Batch, Recorder
from services.jobs.rows import opinion_row, trace_row, verdict_row
from services.judging.heard import Heard, unanswered
from services.judging.hearing import CallKey
from services.judging.judge import Judge, Question, overridden
from services.judging.panel import single
from services.judging.runtime import Call, CallRefused, Completion, RuntimeUnavailable
from services.vocabulary import Outcome

log = structlog.get_logger(__name__)

FLUSH_CALLS = 64
FLUSH_EVERY = 0.25  # seconds; also how often an interrupt is looked for
DATABASE_PAUSE = 1.0
PORTION = 1 << 20  # characters of callers' texts that are tokenised at once: tokens take a hundred times their memory


@dataclass(frozen=True, slots=True)
class Session:
    """Everything that hearing one chunk needs.

    `interrupted` says when to stop: the job no longer wants this chunk, or the worker stops.
    """

    engine: Engine
    held: Claim
    judge: Judge
    epoch_id: UUID
    carrier: Carrier
    interrupted: Callable[[], bool]
    public_url: str
    keep_prompts: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """A call under way."""

    case: Case
    key: CallKey
    question: Question


Wanted = tuple[Case, CallKey]


def hear_chunk(session: Session) -> RuntimeUnavailable | None:
    """Hear a claimed chunk to its end, or until it is interrupted or the runtime is away, which is then returned.

    Raises Fenced when the chunk turns out to be another's.
    """
    return _Chunk(session).hear()


class _Chunk:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._held = session.held
        self._settings = json.loads(session.held.settings)["judges"][session.judge.name]
        self._sampling = overridden(session.judge.sampling, self._settings["sampling"])
        self._recorder = Recorder(session.engine, session.held, session.public_url)
        self._asked: dict[str, Asked] = {}
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._batch = Batch()
        self._cases: list[Case] = []
        self._writing: Batch | None = None  # a batch whose commit failed, or went through without an answer
        self._flushed_at = time.monotonic()

    def hear(self) -> RuntimeUnavailable | None:
        """See hear_chunk."""
        try:
            self._cases = self._open()
            self._ask((case, key) for case in self._cases for key in case.hearing.open_calls())
            while self._asked:
                if self._session.interrupted():
                    self._hang_up()
                    self._conclude(self._recorder.release)
                    return None
                if (away := self._listen()) is not None:
                    self._hang_up()
                    self._conclude(self._recorder.release)
                    return away
                self._flush_if_due()
        except Fenced:
            raise
        except PASSING:
            self._conclude(self._recorder.release)
            raise
        except Exception:
            self._hang_up()
            self._conclude(partial(self._recorder.release, died=True))
            raise
        finally:
            self._hang_up()
        done = all(case.closed for case in self._cases)
        self._conclude(self._recorder.end if done else self._recorder.release)
        return None

    def _open(self) -> list[Case]:
        """The chunk's open cases; one whose last call was flushed without its verdict is closed at once."""
        with transaction(self._session.engine) as connection:
            docket = load(connection, self._held)
        cases = open_cases(self._settings, self._session.judge, docket)
        for case in cases:
            self._close_if_ended(case)
        return cases

    def _hang_up(self) -> None:
        self._session.carrier.hang_up(self._held.claim_id)

    def _ask(self, wanted: Iterable[Wanted]) -> None:
        """Send calls: all first orders by shared prefix, then the second ones. What an interrupt leaves stays open."""
        for few in _in_portions(sorted(wanted, key=_place)):
            if self._session.interrupted():
                return
            self._send(few)
            self._flush_if_due()

    def _send(self, wanted: Sequence[Wanted]) -> None:
        questions = self._session.judge.questions([(case.hearing, key) for case, key in wanted], self._sampling)
        calls: list[Call] = []
        overflown: list[Wanted] = []
        for (case, key), question in zip(wanted, questions, strict=True):
            asked = Asked(case, key, question)
            if question.sampling is None:
                overflown += self._take_down(asked, unanswered(Outcome.CONTEXT_OVERFLOW), None)
                continue
            rid = f"{self._held.claim_id}-{case.seq}-{key.number}"
            self._asked[rid] = asked
            calls.append(Call(rid, question.prompt.ids, question.sampling, question.labels))
        if calls:
            self._session.carrier.send(self._held.claim_id, self._held.priority, calls, self._answers)
        if overflown:
            self._ask(overflown)

    def _listen(self) -> RuntimeUnavailable | None:
        """Take what answers there are, waiting a moment for the first. Returns why the runtime is away, if it is."""
        opened: list[Wanted] = []
        away: RuntimeUnavailable | None = None
        try:
            answer = self._answers.get(timeout=FLUSH_EVERY)
            while True:
                asked = self._asked.pop(answer.rid)
                if isinstance(answer.came, Completion):
                    opened += self._take_down(asked, asked.case.hearing.read(asked.key, answer.came), answer)
                elif isinstance(answer.came, CallRefused):
                    opened += self._take_down(asked, unanswered(Outcome.FAILED), answer)
                elif isinstance(answer.came, RuntimeUnavailable):
                    away = answer.came  # not heard, and so asked again; what else has come is kept
                else:
                    raise answer.came
                if len(self._batch.traces) >= FLUSH_CALLS:
                    break
                answer = self._answers.get_nowait()
        except Empty:
            pass
        if opened and away is None:
            self._ask(opened)
        return away

    def _take_down(self, asked: Asked, heard: Heard, answer: Answer | None) -> list[Wanted]:
        """Add one heard call to the batch, and the item's opinion and verdict when it was the last.

        Returns the calls that it opened.
        """
        case = asked.case
        opened = case.hearing.record(asked.key, heard)
        self._batch.traces.append(
            trace_row(
                self._held,
                case.seq,
                asked.key,
                case.hearing.seating(asked.key),
                self._session.judge.protocol,
                asked.question,
                self._sampling,
                heard,
                answer,
                self._session.epoch_id,
                keep_prompt=self._session.keep_prompts,
            )
        )
        if answer is not None:
            self._batch.calls += 1
            self._batch.prompt_tokens += heard.prompt_tokens or 0
            self._batch.cached_tokens += heard.cached_tokens or 0
            self._batch.completion_tokens += heard.completion_tokens or 0
        self._close_if_ended(case)
        return [(case, key) for key in opened]

    def _close_if_ended(self, case: Case) -> None:
        if case.closed or not case.hearing.ended:
            return
        case.closed = True
        opinion = case.hearing.opinion()
        self._batch.opinions.append(opinion_row(self._held.job_id, case.seq, opinion))
        if self._held.settles:
            self._batch.verdicts.append(verdict_row(self._held.job_id, case.seq, single(opinion)))

    def _flush_if_due(self) -> None:
        full = len(self._batch.traces) >= FLUSH_CALLS
        if not full and time.monotonic() - self._flushed_at < FLUSH_EVERY:
            return
        try:
            self._flush()
        except PASSING as error:
            log.warning("flush_postponed", error=type(error.orig).__name__)
        self._flushed_at = time.monotonic()

    def _flush(self) -> None:
        """Write what is there. After a database error the same batch is written first the next time, unchanged."""
        if self._writing is None:
            self._writing, self._batch = self._batch, Batch()
        self._recorder.flush(self._writing)
        self._writing = None

    def _conclude(self, write: Callable[[Batch], object]) -> None:
        """Write the rest and give the chunk up, however long the database takes: until then nobody else has it."""
        while True:
            try:
                if self._writing is not None:
                    self._flush()
                write(self._batch)
            except PASSING as error:
                log.warning("conclusion_postponed", error=type(error.orig).__name__)
                time.sleep(DATABASE_PAUSE)
            else:
                return


def _place(wanted: Wanted) -> tuple[object, ...]:
    """Where a call stands among those of its chunk: next to those whose prompts begin alike."""
    case, key = wanted
    showing = case.hearing.showing(key)
    context = tuple(turn.content for turn in showing.context)
    return key.sample, key.order.swapped, context, showing.slots, key.number


def _in_portions(wanted: Sequence[Wanted]) -> Iterator[list[Wanted]]:
    """The calls in their order, as many at a time as are tokenised at once."""
    portion: list[Wanted] = []
    size = 0
    for case, key in wanted:
        length = case.hearing.length(key)
        if portion and size + length > PORTION:
            yield portion
            portion, size = [], 0
        portion.append((case, key))
        size += length
    if portion:
        yield portion
