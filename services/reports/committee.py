"""A committee's part of a report: what its members made of the texts that they were to score.

Guarantee: pure, and keeps counts and moments alone. A text that one member did not score is counted by what happened to
it, and is in no mean.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from services.contract.options import CommitteeSettings
from services.contract.reports.committee import CommitteeReport, MemberCorrelation, MemberReport
from services.reports.outcomes import ANSWERED, UNANSWERED
from services.reports.rates import share
from services.stats.moments import Moments
from services.vocabulary import Outcome


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A text that every member scored: its place among all of its item's texts, and what the committee says of it."""

    place: int
    z: Mapping[str, float]
    std: float
    score: float


@dataclass(frozen=True, slots=True)
class Assessed:
    """What a committee made of an item's `texts`, as many as it was to score.

    `outcomes` are what they came to with each model, text by text; `scored` are those that every member scored.
    """

    texts: int
    outcomes: Mapping[str, tuple[Outcome, ...]]
    scored: tuple[ScoredText, ...]


def assessed(body: Mapping[str, Any] | None) -> Assessed | None:
    """What a committee made of an item, out of the stored assessment; None without one, or without a committee.

    PostgreSQL writes 1e20 with all its digits, which JSON reads as a whole number of any size: here all are floats.
    """
    if body is None or body["committee"] is None:
        return None
    return Assessed(
        texts=len(body["pool"]),
        outcomes={model: tuple(map(Outcome, outcomes)) for model, outcomes in body["outcomes"].items()},
        scored=tuple(
            ScoredText(
                place=one["text"],
                z={member: float(z) for member, z in one["z"].items()},
                std=float(one["std"]),
                score=float(one["score"]),
            )
            for one in body["texts"]
            if one["score"] is not None
        ),
    )


class CommitteeTally:
    """What one pass keeps of a committee's scores."""

    def __init__(self, committee: CommitteeSettings) -> None:
        self.committee = committee
        self.texts = 0
        self._unscored: dict[str, Counter[Outcome]] = {member: Counter() for member in committee.members}
        self._moments = Moments(len(committee.members) + 2)  # z of each member, their std, the score

    def add(self, told: Assessed) -> None:
        """Count the texts of one item."""
        if not told.texts:
            return
        self.texts += told.texts
        for member, models in self.committee.members.items():
            for came in zip(*(told.outcomes[model] for model in models), strict=True):
                self._unscored[member].update([outcome for outcome in came if outcome not in ANSWERED][:1])
        if told.scored:
            rows = [[*(one.z[member] for member in self._unscored), one.std, one.score] for one in told.scored]
            self._moments.add(np.array(rows, dtype=np.float64))

    def report(self) -> CommitteeReport:
        """The committee's part, out of what was counted."""
        members, moments = tuple(self.committee.members), self._moments
        return CommitteeReport(
            name=self.committee.name,
            normalise=self.committee.normalise,
            scored=share(moments.count, self.texts),
            score=moments.mean(len(members) + 1),
            disagreement=moments.mean(len(members)),
            members=tuple(self._member(place, name) for place, name in enumerate(members)),
            correlations=tuple(
                MemberCorrelation(
                    members=(members[first], members[second]),
                    r=moments.correlation(first, second),
                    texts=moments.count,
                )
                for first, second in combinations(range(len(members)), 2)
            ),
        )

    def _member(self, place: int, name: str) -> MemberReport:
        unscored = self._unscored[name]
        return MemberReport(
            name=name,
            models=tuple(self.committee.members[name]),
            weight=self.committee.weights[name],
            scored=share(self.texts - unscored.total(), self.texts),
            unscored={outcome: unscored[outcome] for outcome in UNANSWERED},
            mean=self._moments.mean(place),
            std=self._moments.std(place),
        )
