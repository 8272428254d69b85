"""Scoring: what one model of a committee makes of the texts of one item.

Guarantee: pure. A text that got no score has none: what became of it stands in the score's place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from services.judging.heard import Heard
from services.judging.hearing import Comparison, Hearing, HearingOptions
from services.judging.opinion import come_to
from services.judging.proceeding import CallKey, Spent, TextByText, spent
from services.judging.protocol import Family, Message, Showing
from services.vocabulary import Decide, Flag, Order, Outcome, Task


@dataclass(frozen=True, slots=True)
class ToScore:
    """Texts to score, each as an answer to the same context."""

    context: tuple[Message, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scores:
    """A model's raw scores, in the order of the texts, None where there is none; and what each text came to.

    A reward model's are its numbers, a judge's the mean grade over the `valid` ones of the samples that were `asked`.
    Where it decides softly that is the expected grade (with two grades 1 + P(yes)), and a sample whose grade has no
    probability is not valid: a written grade is no stand-in for an expected one.
    """

    values: tuple[float | None, ...]
    outcomes: tuple[Outcome, ...]
    valid: tuple[int, ...]
    asked: tuple[int, ...]
    flags: frozenset[Flag]
    spent: Spent


class RewardScoring(TextByText):
    """One reward model: one call a text. See Proceeding."""

    def __init__(self, family: Family, scored: ToScore) -> None:
        super().__init__(family, len(scored.texts))
        self._scored = scored
        self._heard: dict[int, Heard] = {}

    def showing(self, key: CallKey) -> Showing:
        """See Proceeding."""
        return Showing(self._scored.context, (self._scored.texts[key.match],))

    def _take_down(self, key: CallKey, heard: Heard) -> list[CallKey]:
        self._heard[key.match] = heard
        return []

    def scores(self) -> Scores:
        """What the texts came to."""
        heard = [self._heard[index] for index in range(len(self._scored.texts))]
        suspected = self._family.injection_suspected(Showing(self._scored.context, self._scored.texts))
        flags = frozenset({Flag.INJECTION_SUSPECTED}) if suspected else frozenset[Flag]()
        return Scores(
            values=tuple(one.reading.scores[0] if one.answered else None for one in heard),
            outcomes=tuple(one.outcome for one in heard),
            valid=tuple(int(one.answered) for one in heard),
            asked=(1,) * len(heard),
            flags=flags.union(*(one.reading.flags for one in heard)),
            spent=spent(heard),
        )


class GradedScoring(Hearing):
    """One judge that grades texts one by one: its hearing, and the grades instead of an opinion."""

    def scores(self) -> Scores:
        """What the texts came to. Raises ValueError before the end."""
        if not self.ended:
            raise ValueError("the scoring has not ended")
        samples = [self._samples(index) for index in range(len(self._comparison.candidates))]
        graded = [[self._grade(calls) for calls in asked] for asked in samples]
        grades = [[grade for grade in asked if grade is not None] for asked in graded]
        heard = [call for asked in samples for calls in asked for call in calls]
        return Scores(
            values=tuple(fmean(valid) if valid else None for valid in grades),
            outcomes=tuple(
                Outcome.DECIDED if valid else _shortfall(asked[-1])
                for valid, asked in zip(grades, samples, strict=True)
            ),
            valid=tuple(map(len, grades)),
            asked=tuple(map(len, samples)),
            flags=self._suspicion().union(*(call.reading.flags for call in heard)),
            spent=spent(heard),
        )

    def _samples(self, index: int) -> list[Sequence[Heard]]:
        """The samples of one text, each with its calls."""
        trial, side = self._trial_of[index, Order.AB]
        return [calls for (order, _), calls in sorted(trial.calls.items()) if order is side]

    def _grade(self, calls: Sequence[Heard]) -> float | None:
        """The grade of one sample; None where it has none that counts."""
        heard = come_to(calls)
        if not heard.answered:
            return None
        return heard.expected if self._scales.decide is Decide.SOFT else heard.reading.scores[0]


def _shortfall(calls: Sequence[Heard]) -> Outcome:
    """What kept a sample from a grade, or a written grade from its probability."""
    heard, last = come_to(calls), calls[-1]
    if not heard.answered:
        return heard.outcome
    return Outcome.UNPARSEABLE if last.answered else last.outcome


Scoring = RewardScoring | GradedScoring


def open_scoring(judge: str, family: Family, scored: ToScore, options: HearingOptions | None) -> Scoring:
    """The scoring of these texts by a model. `options` say how a judge hears; a reward model has none.

    Raises ValueError for a judge that compares texts.
    """
    if family.slots != 1:
        raise ValueError(f"the protocol {family.name} grades no text alone")
    if family.task is Task.SCORE:
        return RewardScoring(family, scored)
    assert options is not None
    return GradedScoring(judge, "", Comparison(scored.context, scored.texts), family, options)
