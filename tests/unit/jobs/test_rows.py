"""A trace tells what a call cost: only what a runtime counted, and the length of what was never sent."""

import json
from datetime import UTC, date, datetime

import pytest

from services.foundation.identifiers import new_id
from services.jobs.answer import Answer
from services.jobs.claim import Claim
from services.jobs.record import REAPPRAISAL_COLUMNS, SCORE_COLUMNS, TRACE_COLUMNS
from services.jobs.rows import scores_row, trace_row, written_row
from services.judging.heard import Heard, unanswered
from services.judging.judge import GREEDY, Question
from services.judging.pairings import Seating
from services.judging.proceeding import CallKey, Spent
from services.judging.prompt import Prompt
from services.judging.reading import Reading
from services.judging.registry import protocol
from services.judging.runtime import CallRefused, Completion
from services.judging.scoring import Scores
from services.judging.writing import Text, Written
from services.vocabulary import FinishReason, Flag, Order, Outcome, Priority, Stage, Winner

NOW = datetime(2026, 11, 29, tzinfo=UTC)
HELD = Claim(
    *(new_id(), new_id(), Stage.HEAR, 0, 0, "tiny", 0, 1, 1, 0, Priority.STANDARD, date(2026, 11, 29), "{}"),
    step=0,
    settles=True,
    alone=False,
    deaths=0,
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


def test_what_was_written_and_what_it_is_worth_are_stored_with_their_flags() -> None:
    job_id, flags, spent = new_id(), frozenset({Flag.THINK_UNCLOSED, Flag.INJECTION_SUSPECTED}), Spent(3, 300, 30, 3)
    written = Written((Text(0, 0, Outcome.ACCEPTED, "It may be so.", 1),), flags, spent)
    row = dict(zip(REAPPRAISAL_COLUMNS, written_row(job_id, 7, written), strict=True))
    assert (row["seq"], row["flags"], row["calls"]) == (7, ["injection_suspected", "think_unclosed"], 3)
    assert json.loads(row["texts"]) == [
        {"candidate": 0, "attempt": 0, "outcome": "accepted", "text": "It may be so.", "sentences": 1}
    ]
    outcomes = (Outcome.DECIDED, Outcome.UNPARSEABLE)
    scores = Scores((1.5, None), outcomes, (2, 0), (3, 3), frozenset({Flag.FORCED}), spent)
    row = dict(zip(SCORE_COLUMNS, scores_row(job_id, 7, "rm", new_id(), scores), strict=True))
    assert [json.loads(row[name]) for name in ("scores", "outcomes", "valid", "asked")] == [
        [1.5, None],
        ["decided", "unparseable"],
        [2, 0],
        [3, 3],
    ]
    assert (row["model"], row["flags"], row["prompt_tokens"]) == ("rm", ["forced"], 300)


def test_the_trace_of_a_call_that_the_chat_template_refused_has_its_words_and_no_prompt() -> None:
    question = Question(Prompt([], "", "the chat template refuses what it is given: one turn only"), None)
    heard = unanswered(Outcome.FAILED, sent=False)
    key, seating = CallKey(0, Order.AB, 0, forced=False), Seating(0, Order.AB, (0,))
    row = trace_row(
        HELD, 0, key, seating, protocol("reward"), question, GREEDY, heard, None, new_id(), keep_prompt=True
    )
    trace = dict(zip(TRACE_COLUMNS, row, strict=True))
    assert (trace["outcome"], json.loads(trace["error_message"])) == (Outcome.FAILED, question.prompt.refused)
    assert [trace[name] for name in ("prompt", "prompt_sha256", "prompt_tokens", "sampling", "sent_at")] == [None] * 5
