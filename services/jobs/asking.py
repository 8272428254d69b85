"""Asking: the open calls of some cases are sent, and their answers taken in, until nothing is open.

Guarantee: every answer is taken in once, and every call that it opens is sent. Tokenising happens in the caller's own
thread, in portions, calls on the carrier's event loop.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from services.jobs.answer import Answer, Carrier
from services.jobs.docket import Case
from services.judging.heard import Heard, unanswered
from services.judging.judge import Judge, Question
from services.judging.proceeding import CallKey, length
from services.judging.protocol import Showing
from services.judging.runtime import Call, CallRefused, Completion, RuntimeUnavailable, Sampling
from services.vocabulary import Outcome, Priority

MOST_AT_ONCE = 64  # answers that are taken in before something else may be done
WAIT = 0.25  # seconds for an answer; also how often an interrupt is looked for
PORTION = 1 << 20  # characters of callers' texts that are tokenised at once: tokens take a hundred times their memory


@dataclass(frozen=True, slots=True)
class Asked:
    """A call under way."""

    case: Case[Any]
    key: CallKey
    question: Question


Wanted = tuple[Case[Any], CallKey]


@dataclass(frozen=True, slots=True)
class Line:
    """Who is asked, how, and on whose account: `name` is unique among all that the carrier has under way."""

    name: Hashable
    priority: Priority
    judge: Judge
    sampling: Sampling
    carrier: Carrier
    interrupted: Callable[[], bool]


class Asking:
    """Asks until nothing is open, it is interrupted, or the runtime is away: then `away` says why."""

    def __init__(
        self, line: Line, take_down: Callable[[Asked, Heard, Answer | None], None], meanwhile: Callable[[], None]
    ) -> None:
        """`take_down` writes down a call that its proceeding has taken in; its answer is None if it was never sent.

        `meanwhile` is called again and again.
        """
        self._line = line
        self._take_down = take_down
        self._meanwhile = meanwhile
        self._asked: dict[str, Asked] = {}
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self.away: RuntimeUnavailable | None = None

    def work_off(self, cases: Iterable[Case[Any]]) -> None:
        """Ask what is open of these cases, and what opens."""
        self._ask((case, key) for case in cases for key in case.proceeding.open_calls())
        while self._asked and self.away is None and not self._line.interrupted():
            self._listen()
            self._meanwhile()

    def hang_up(self) -> None:
        """Abort what is under way, and wait until that is done."""
        self._line.carrier.hang_up(self._line.name)

    def _ask(self, wanted: Iterable[Wanted]) -> None:
        """Send calls: all first orders by shared prefix, then the second ones. What an interrupt leaves stays open."""
        for few in _in_portions(sorted(wanted, key=_place)):
            if self._line.interrupted():
                return
            self._send(few)
            self._meanwhile()

    def _send(self, wanted: Sequence[Wanted]) -> None:
        line = self._line
        questions = line.judge.questions([(case.proceeding, key) for case, key in wanted], line.sampling)
        calls: list[Call] = []
        opened: list[Wanted] = []
        for (case, key), question in zip(wanted, questions, strict=True):
            asked = Asked(case, key, question)
            if question.sampling is None:
                outcome = Outcome.CONTEXT_OVERFLOW if question.prompt.refused is None else Outcome.FAILED
                opened += self._take_in(asked, unanswered(outcome, sent=False), None)
                continue
            rid = f"{line.name}-{case.seq}-{key.number}"
            self._asked[rid] = asked
            calls.append(Call(rid, question.prompt.ids, question.sampling, question.labels, question.classifies))
        if calls:
            line.carrier.send(line.name, line.priority, calls, self._answers)
        if opened:
            self._ask(opened)

    def _listen(self) -> None:
        """Take in what answers there are, waiting a moment for the first."""
        opened: list[Wanted] = []
        try:
            answer = self._answers.get(timeout=WAIT)
            for _ in range(MOST_AT_ONCE):
                opened += self._take(answer)
                answer = self._answers.get_nowait()
            opened += self._take(answer)
        except Empty:
            pass
        if opened and self.away is None:
            self._ask(opened)

    def _take(self, answer: Answer) -> list[Wanted]:
        asked = self._asked.pop(answer.rid)
        if isinstance(answer.came, Completion):
            return self._take_in(asked, asked.case.proceeding.read(asked.key, answer.came), answer)
        if isinstance(answer.came, CallRefused):
            return self._take_in(asked, unanswered(Outcome.FAILED), answer)
        if not isinstance(answer.came, RuntimeUnavailable):
            raise answer.came
        self.away = answer.came  # not heard, and so asked again; what else has come is kept
        return []

    def _take_in(self, asked: Asked, heard: Heard, answer: Answer | None) -> list[Wanted]:
        """Record one heard call. Returns the calls that it opened."""
        opened = asked.case.proceeding.record(asked.key, heard)
        self._take_down(asked, heard, answer)
        return [(asked.case, key) for key in opened]


def _place(wanted: Wanted) -> tuple[object, ...]:
    """Where a call stands among those of its chunk: next to those whose prompts begin alike."""
    case, key = wanted
    showing = case.proceeding.showing(key)
    context = tuple(turn.content for turn in showing.context)
    return key.sample, key.order.swapped, context, showing.slots, key.number


def _in_portions(wanted: Sequence[Wanted]) -> Iterator[list[Wanted]]:
    """The calls in their order, as many at a time as are tokenised at once. What several show is tokenised once."""
    portion: list[Wanted] = []
    shown: set[Showing] = set()
    size = 0
    for case, key in wanted:
        showing = case.proceeding.showing(key)
        characters = 0 if showing in shown else length(showing)
        if portion and size + characters > PORTION:
            yield portion
            portion, shown, size = [], set(), 0
        portion.append((case, key))
        shown.add(showing)
        size += characters
    if portion:
        yield portion
