"""One call of a hearing, answered: what the judge wrote or chose, read.

Guarantee: made of a runtime's answer alone, so that a call replayed from its stored trace gives the same `Heard`, all
but `latency_s`: a trace keeps the seconds that the worker waited, which take the place of the runtime's own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from services.judging.protocol import Family
from services.judging.reading import Reading, VerdictForm
from services.judging.runtime import Completion
from services.vocabulary import FinishReason, Flag, Outcome, Winner

ReadingRule = Literal["strict", "seed"]

NO_ANSWER = frozenset({Outcome.CONTEXT_OVERFLOW, Outcome.ABORTED, Outcome.FAILED, Outcome.POISONED})


@dataclass(frozen=True, slots=True)
class Heard:
    """One answered call. Its reading stands in the shown frame: `A` is the first slot.

    `p_first` is how far the first slot is preferred at the verdict token, at temperature 1: P(first) / (P(first) +
    P(second)), where a tie is a label P(first) + P(tie) / 2 over all three. `expected` is a pointwise judge's mean
    grade there. Both are None where the answer was read from text. `text` is what the judge wrote. Tokens and seconds
    are the runtime's own, None where it gave none. What was not `sent` never reached the runtime, and cost nothing.
    """

    reading: Reading
    p_first: float | None = None
    expected: float | None = None
    text: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    latency_s: float | None = None
    sent: bool = True

    @property
    def outcome(self) -> Outcome:
        """What the call came to."""
        return self.reading.outcome

    @property
    def answered(self) -> bool:
        """True for an answer, a tie among them."""
        return self.reading.answered

    @property
    def sure(self) -> bool:
        """True where the answer's probability is known."""
        return self.p_first is not None or self.expected is not None

    def as_json(self) -> dict[str, Any]:
        """The reading as a trace keeps it, and what its probabilities say."""
        return self.reading.as_json() | {"p_first": self.p_first, "expected": self.expected}


def hear_text(protocol: Family, completion: Completion, rule: ReadingRule) -> Heard:
    """An answer in the judge's own words. `seed` takes the published loose rule's answer wherever it has one.

    Such an answer keeps its place in the text only where the strict rule reads the same.
    """
    reading = protocol.read(completion.text, completion.finish_reason)
    if rule == "seed" and reading.seed_verdict and reading.outcome is not Outcome.ABORTED:
        span = reading.span if reading.winner is reading.seed_verdict else None
        reading = replace(reading, outcome=Outcome.DECIDED, winner=reading.seed_verdict, rule="seed_verdict", span=span)
    return _heard(reading, completion)


def hear_labels(form: VerdictForm, completion: Completion) -> Heard:
    """A forced answer: one token out of the form's labels, read by their log-probabilities.

    The likeliest label is the answer. Of a pair, equal ones are a tie; of grades, the lowest of equal ones stands.
    """
    forced = frozenset({Flag.FORCED})
    if completion.finish_reason is FinishReason.ABORT:
        return _heard(Reading(Outcome.ABORTED, None, "aborted", forced), completion)
    shares = _shares(dict(completion.label_logprobs), form.labels.names)
    if shares is None:
        return _heard(Reading(Outcome.UNPARSEABLE, None, "no_label_logprobs", forced), completion)
    answers = {form.labels.match(name): share for name, share in shares.items()}
    likeliest = [answer for answer, share in answers.items() if share == max(answers.values())]
    if isinstance(likeliest[0], int):
        expected = sum(grade * share for grade, share in answers.items() if isinstance(grade, int))
        reading = Reading(Outcome.DECIDED, None, "label_logprobs", forced, scores=(likeliest[0],))
        return _heard(reading, completion, expected=expected)
    winner = likeliest[0] if len(likeliest) == 1 and isinstance(likeliest[0], Winner) else Winner.TIE
    outcome = Outcome.TIE if winner is Winner.TIE else Outcome.DECIDED
    p_first = answers[Winner.A] + answers.get(Winner.TIE, 0.0) / 2
    return _heard(Reading(outcome, winner, "label_logprobs", forced), completion, p_first=p_first)


def hear_probability(form: VerdictForm, completion: Completion) -> Heard:
    """How sure a written verdict is: one token out of the labels, asked at the very place of the written one.

    Read as a forced answer is, and not flagged as one: the verdict stays the text's, this lends it its probability.
    """
    heard = hear_labels(form, completion)
    return replace(heard, reading=replace(heard.reading, rule="verdict_probability", flags=frozenset()))


def unanswered(outcome: Outcome, *, sent: bool = True) -> Heard:
    """A call that came to nothing: it did not fit the context, was aborted, or was refused.

    What the runtime refuses was `sent`, what the model's chat template refuses was not. Raises ValueError for an
    outcome that needs an answer.
    """
    if outcome not in NO_ANSWER:
        raise ValueError(f"{outcome} is the outcome of an answer")
    return Heard(Reading(outcome, None, outcome.value), sent=sent and outcome is not Outcome.CONTEXT_OVERFLOW)


def _shares(logprobs: Mapping[str, float], labels: Sequence[str]) -> dict[str, float] | None:
    """The labels' probabilities among themselves; None where one is not known or all are zero."""
    given = [logprobs.get(label, math.nan) for label in labels]
    greatest = max(given)
    if any(map(math.isnan, given)) or greatest == -math.inf:
        return None
    weights = [math.exp(logprob - greatest) for logprob in given]
    return {label: weight / sum(weights) for label, weight in zip(labels, weights, strict=True)}


def _heard(
    reading: Reading, completion: Completion, *, p_first: float | None = None, expected: float | None = None
) -> Heard:
    return Heard(
        reading,
        p_first,
        expected,
        completion.text,
        completion.prompt_tokens,
        completion.cached_tokens,
        completion.completion_tokens,
        completion.latency_s,
    )
