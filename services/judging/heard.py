"""One call of a hearing, answered: what the judge wrote or chose, read.

Guarantee: made of a runtime's answer alone, so that a call replayed from its stored trace gives the same `Heard`, all
but `latency_s`: a trace keeps the seconds that the worker waited, which take the place of the runtime's own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from services.judging.protocol import JudgeProtocol, VerdictForm
from services.judging.reading import Reading
from services.judging.runtime import Completion
from services.vocabulary import FinishReason, Flag, Outcome, Winner

ReadingRule = Literal["strict", "seed"]

NO_ANSWER = frozenset({Outcome.CONTEXT_OVERFLOW, Outcome.ABORTED, Outcome.FAILED})


@dataclass(frozen=True, slots=True)
class Heard:
    """One answered call. Its reading stands in the shown frame: `A` is the first slot.

    `p_first` is P(first) / (P(first) + P(second)) at the verdict token, at temperature 1; None where the answer was
    read from text. `text` is what the judge wrote. Tokens and seconds are the runtime's own, None where it gave none.
    """

    reading: Reading
    p_first: float | None = None
    text: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    latency_s: float | None = None

    @property
    def outcome(self) -> Outcome:
        """What the call came to."""
        return self.reading.outcome

    @property
    def winner(self) -> Winner | None:
        """The slot that was preferred, None unless the outcome is `decided` or `tie`."""
        return self.reading.winner

    @property
    def sent(self) -> bool:
        """False for a call that did not fit the context: it never reached the runtime, and cost nothing."""
        return self.outcome is not Outcome.CONTEXT_OVERFLOW


def hear_text(protocol: JudgeProtocol, completion: Completion, rule: ReadingRule) -> Heard:
    """An answer in the judge's own words. `seed` takes the published loose rule's answer wherever it has one.

    Such an answer keeps its place in the text only where the strict rule reads the same.
    """
    reading = protocol.read(completion.text, completion.finish_reason)
    if rule == "seed" and reading.seed_verdict and reading.outcome is not Outcome.ABORTED:
        span = reading.span if reading.winner is reading.seed_verdict else None
        reading = replace(reading, outcome=Outcome.DECIDED, winner=reading.seed_verdict, rule="seed_verdict", span=span)
    return _heard(reading, None, completion)


def hear_labels(form: VerdictForm, completion: Completion) -> Heard:
    """A forced answer: one token out of two labels, read by their log-probabilities. Equal ones are a tie."""
    p_first = _share(dict(completion.label_logprobs), form.labels)
    forced = frozenset({Flag.FORCED})
    if completion.finish_reason is FinishReason.ABORT:
        return _heard(Reading(Outcome.ABORTED, None, "aborted", forced), None, completion)
    if p_first is None:
        return _heard(Reading(Outcome.UNPARSEABLE, None, "no_label_logprobs", forced), None, completion)
    if p_first == 0.5:
        return _heard(Reading(Outcome.TIE, Winner.TIE, "label_logprobs", forced), p_first, completion)
    winner = Winner.A if p_first > 0.5 else Winner.B
    return _heard(Reading(Outcome.DECIDED, winner, "label_logprobs", forced), p_first, completion)


def hear_probability(form: VerdictForm, completion: Completion) -> Heard:
    """How sure a written verdict is: one token out of two labels, asked at the very place of the written one.

    Read as a forced answer is, and not flagged as one: the verdict stays the text's, this lends it its `p_first`.
    """
    heard = hear_labels(form, completion)
    return replace(heard, reading=replace(heard.reading, rule="verdict_probability", flags=frozenset()))


def unanswered(outcome: Outcome) -> Heard:
    """A call that came to nothing: it did not fit the context, was aborted, or was refused by the runtime.

    Raises ValueError for an outcome that needs an answer.
    """
    if outcome not in NO_ANSWER:
        raise ValueError(f"{outcome} is the outcome of an answer")
    return Heard(Reading(outcome, None, outcome.value))


def _share(logprobs: Mapping[str, float], labels: tuple[str, str]) -> float | None:
    """The first label's share of both probabilities; None where they are not known or both zero."""
    first, second = (logprobs.get(label, math.nan) for label in labels)
    odds = first - second
    if math.isnan(odds):
        return None
    # Only negative exponents: a large one would overflow.
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))


def _heard(reading: Reading, p_first: float | None, completion: Completion) -> Heard:
    return Heard(
        reading,
        p_first,
        completion.text,
        completion.prompt_tokens,
        completion.cached_tokens,
        completion.completion_tokens,
        completion.latency_s,
    )
