"""A trace tells what a call cost: only what a runtime counted, and the length of what was never sent."""

from datetime import UTC, date, datetime

import pytest

from services.foundation.identifiers import new_id
from services.jobs.answer import Answer
from services.jobs.claim import Claim
from services.jobs.record import TRACE_COLUMNS
from services.jobs.rows import trace_row
from services.judging.heard import Heard, unanswered
from services.judging.hearing import CallKey
from services.judging.judge import GREEDY, Question
from services.judging.pairings import Seating
from services.judging.prompt import Prompt
from services.judging.reading import Reading
from services.judging.registry import protocol
from services.judging.runtime import CallRefused, Completion
from services.vocabulary import FinishReason, Order, Outcome, Priority, Stage, Winner

NOW = datetime(2026, 11, 29, tzinfo=UTC)
HELD = Claim(
    *(new_id(), new_id(), Stage.HEAR, 0, 0, "tiny", 0, 1, 1, 0, Priority.STANDARD, date(2026, 11, 29), "{}"),
    settles=True,
)
ANSWERED = Heard(Reading(Outcome.DECIDED, Winner.A, "label_logprobs"), 0.75)


@pytest.mark.parametrize(
    ("heard", "came", "prompt_tokens"),
    [
        (ANSWERED, Completion("A", FinishReason.LENGTH, 7, 0, 1), 7),
        (unanswered(Outcome.FAILED), CallRefused("no"), None),
        (unanswered(Outcome.CONTEXT_OVERFLOW), None, 5),
    ],
)
def test_prompt_tokens_are_the_runtimes_own_where_a_call_was_sent(
    heard: Heard, came: Completion | CallRefused | None, prompt_tokens: int | None
) -> None:
    question = Question(Prompt([1, 2, 3, 4, 5], "ask"), GREEDY if came else None, ())
    answer = Answer("rid", came, NOW, 0.5) if came else None
    key = CallKey(0, Order.AB, 0, forced=True)
    seating = Seating(0, Order.AB, (0, 1))
    row = trace_row(
        HELD, 0, key, seating, protocol("sdrm"), question, GREEDY, heard, answer, new_id(), keep_prompt=True
    )
    trace = dict(zip(TRACE_COLUMNS, row, strict=True))
    assert trace["prompt_tokens"] == prompt_tokens
    assert trace["sent_at"] == (NOW if came else None)
