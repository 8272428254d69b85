"""What is asked of a carrier, and what is taken down: a call that cannot be sent is one that has failed, once."""

from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

import pytest

from embedded import models
from services.foundation.fleet import FleetModel
from services.jobs import asking
from services.jobs.answer import Answer
from services.jobs.asking import Asked, Asking, Line
from services.jobs.docket import Case
from services.judging.heard import Heard
from services.judging.judge import Judge
from services.judging.protocol import Message
from services.judging.runtime import Call, Completion
from services.judging.scoring import RewardScoring, ToScore
from services.judging.writing import Writing
from services.vocabulary import FinishReason, Outcome, Priority
from workers.runtime.tokenizer import load_tokenizer, vocabulary_size

ONE_TURN = (
    "{{ raise_exception('one turn only') if messages | length > 2 }}"
    "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
)
ASKED = Message("user", "My friend did not answer.")


class Carried:
    """A carrier that answers at once, and keeps what it was sent, batch by batch."""

    def __init__(self, text: str) -> None:
        self.batches: list[Sequence[Call]] = []
        self._text = text

    def send(self, chunk: Hashable, priority: Priority, calls: Sequence[Call], answers: SimpleQueue[Answer]) -> None:
        """Answer them all."""
        self.batches.append(calls)
        for call in calls:
            completion = Completion(self._text, FinishReason.STOP, 9, 0, 1)
            answers.put(Answer(call.rid, completion, datetime.now(UTC), 0.1))

    def hang_up(self, chunk: Hashable) -> None:
        """Nothing is under way."""


def judge_of(protocol: str, template: str | None = None, **options: object) -> Judge:
    weights = str(models.make("scripted"))
    tokenizer = load_tokenizer(weights)
    tokenizer.chat_template = template or tokenizer.chat_template
    model = FleetModel(name="model", protocol=protocol, weights=weights, protocol_options=options)
    return Judge.of(model, tokenizer, vocabulary_size(tokenizer, weights))


def work_off(judge: Judge, carrier: Carried, cases: Sequence[Case[Any]]) -> list[tuple[Asked, Heard, Answer | None]]:
    """Ask all that is open. What was taken down, in its order."""
    taken: list[tuple[Asked, Heard, Answer | None]] = []
    line = Line("line", Priority.STANDARD, judge, judge.sampling, carrier, lambda: False)
    asked = Asking(line, lambda *took: taken.append(took), lambda: None)
    asked.work_off(cases)
    assert asked.away is None
    return taken


def test_an_item_that_the_chat_template_refuses_fails_alone() -> None:
    judge = judge_of("reward", ONE_TURN)
    long = (ASKED, Message("assistant", "Since when?"), Message("user", "Since Monday."))
    items = [ToScore((ASKED,), ("She may be busy.",)), ToScore(long, ("Ask her.",)), ToScore((ASKED,), ("Wait.",))]
    cases = [Case(seq, RewardScoring(judge.protocol, item)) for seq, item in enumerate(items)]
    carrier = Carried("[0.5]")
    taken = work_off(judge, carrier, cases)
    came = [case.proceeding.scores() for case in cases]
    assert [scores.values for scores in came] == [(0.5,), (None,), (0.5,)]
    assert [scores.outcomes for scores in came] == [(Outcome.DECIDED,), (Outcome.FAILED,), (Outcome.DECIDED,)]
    assert [scores.spent.calls for scores in came] == [1, 0, 1]
    assert [call.rid for calls in carrier.batches for call in calls] == ["line-0-0", "line-2-0"]
    ((refused, heard, answer),) = [took for took in taken if took[0].case.seq == 1]
    assert refused.question.prompt.refused == "the chat template refuses what it is given: one turn only"
    assert (refused.question.sampling, heard.sent, answer) == (None, False, None)


def test_what_several_calls_show_counts_once_for_what_is_tokenised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PORTION", 50)
    judge = judge_of("reappraisal", thinks=False)
    scenarios = ["I was laughed at by all of them.", "I was late for it, and they left."]  # one fits into a portion
    cases = [Case(seq, Writing(judge.protocol, scenario, 4, 0)) for seq, scenario in enumerate(scenarios)]
    carrier = Carried("It may be so.")
    assert len(work_off(judge, carrier, cases)) == 8
    assert [len(calls) for calls in carrier.batches] == [4, 4]
