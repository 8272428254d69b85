"""The part of a committee that chooses: its scores, and what becomes of them by choosing.

Guarantee: pure, and keeps counts and sums alone. The chosen texts' scores are never mixed with those of all texts.
"""

from collections import Counter

from services.contract.options import CommitteeSettings
from services.contract.reports.reappraisal import ChoosingCommittee, ChoosingMember
from services.reports.committee import Assessed, CommitteeTally
from services.reports.rates import share

_EQUAL = 1e-9  # z nearer than this are one


class ChoiceTally:
    """What one pass keeps of a committee's choices."""

    def __init__(self, committee: CommitteeSettings) -> None:
        self.several = 0  # choices among more than one scored text
        self._scores = CommitteeTally(committee)
        self._favourites: Counter[str] = Counter()
        self._chosen = 0
        self._chosen_score = 0.0

    def add(self, told: Assessed, selected: int | None) -> None:
        """Count one item; `selected` is the place of the chosen text."""
        self._scores.add(told)
        chosen = next((one for one in told.scored if one.place == selected), None)
        if chosen is None:
            return
        self._chosen += 1
        self._chosen_score += chosen.score
        if len(told.scored) > 1:
            self.several += 1
            highest = {member: max(one.z[member] for one in told.scored) for member in chosen.z}
            self._favourites.update(member for member, z in chosen.z.items() if z >= highest[member] - _EQUAL)

    def report(self) -> ChoosingCommittee:
        """The committee's part, out of what was counted."""
        scores = self._scores.report()
        members = [
            ChoosingMember(**dict(member), favourite=share(self._favourites[member.name], self.several))
            for member in scores.members
        ]
        mean = self._chosen_score / self._chosen if self._chosen else None
        return ChoosingCommittee(**dict(scores) | {"members": members}, chosen=self._chosen, chosen_score=mean)
