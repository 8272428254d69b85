"""The gate's part of a report: what became of the texts that were written.

Guarantee: pure, and keeps counts alone. What came to no text is counted by why, and never as one that did not pass.
"""

from collections import Counter
from dataclasses import dataclass, field

from services.contract.reports.reappraisal import GateReport
from services.reports.outcomes import GATED, UNWRITTEN
from services.reports.rates import share
from services.reports.reappraisal.item import ReappraisalRow
from services.vocabulary import Outcome


@dataclass(slots=True)
class GateTally:
    """What one pass keeps of the written texts."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, row: ReappraisalRow) -> None:
        """Count the texts of one item."""
        if row.attempts is None:
            return
        self.outcomes.update(one.outcome for one in row.attempts)
        texts = [one for one in row.attempts if one.outcome in GATED]
        self.counts.update(
            items=bool(texts),
            none_passed=bool(texts) and not any(one.outcome is Outcome.ACCEPTED for one in texts),
            texts=len(texts),
            repeated=sum(one.attempt > 0 for one in texts),
        )
        if row.selected is not None:
            sentences = row.attempts[row.selected].sentences
            assert sentences is not None  # what the gate lets pass it has counted
            self.counts.update(chosen=1, sentences=sentences)

    def report(self) -> GateReport:
        """The gate's part, out of what was counted."""
        n = self.counts
        return GateReport(
            accepted=share(self.outcomes[Outcome.ACCEPTED], n["texts"]),
            outcomes={outcome: self.outcomes[outcome] for outcome in GATED},
            unwritten={outcome: self.outcomes[outcome] for outcome in UNWRITTEN},
            repeated=share(n["repeated"], n["texts"]),
            none_passed=share(n["none_passed"], n["items"]),
            chosen=n["chosen"],
            sentences=n["sentences"] / n["chosen"] if n["chosen"] else None,
        )
