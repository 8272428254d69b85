"""Building the report of a scoring job: one pass over its items.

Guarantee: pure, and bounded: it keeps a few bytes an item and no text but the names of systems, of which it follows the
first `MAX_SYSTEMS`. A text that one member did not score is in no mean. What is undefined is None.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from services.contract.options import CommitteeSettings
from services.contract.reports.parts import Note
from services.contract.reports.scoring import ReportedScoring, ScoringReport, SystemScore
from services.reports.committee import CommitteeTally
from services.reports.notes import on_clusters, on_items, on_systems
from services.reports.rates import Followed, Scores, share
from services.reports.scoring.item import ScoringRow
from services.reports.settled import SettledTally
from services.stats.intervals import cluster_key
from services.vocabulary import JobKind


def build(job: ReportedScoring, committee: CommitteeSettings, total: int, rows: Iterable[ScoringRow]) -> ScoringReport:
    """The report of a job of `total` items over the heard ones. `rows` is consumed once, in any order."""
    tally = _Tally(CommitteeTally(committee))
    for row in rows:
        tally.add(row)
    return tally.report(job, total)


@dataclass(slots=True)
class _SystemTally:
    """What one pass keeps of the texts of one system."""

    heard: int = 0
    std: float = 0.0
    scores: Scores = field(default_factory=Scores)

    def report(self, system: str | None) -> SystemScore:
        scores = self.scores.mean()
        return SystemScore(
            **dict(scores),
            system=system,
            scored=share(scores.texts, self.heard),
            disagreement=self.std / scores.texts if scores.texts else None,
        )


@dataclass(slots=True)
class _Tally:
    """What one pass keeps."""

    committee: CommitteeTally
    items: SettledTally = field(default_factory=SettledTally)
    systems: Followed[_SystemTally] = field(default_factory=lambda: Followed(_SystemTally))

    def add(self, row: ScoringRow) -> None:
        """Count one item."""
        self.items.add(row, suspected=row.suspected)
        if row.assessed is not None:
            self.committee.add(row.assessed)
        if (system := self.systems.of(row.system)) is None:
            return
        system.heard += 1
        for text in row.assessed.scored if row.assessed is not None else ():
            system.std += text.std
            system.scores.add(cluster_key(row.cluster, row.seq), text.score)

    def report(self, job: ReportedScoring, total: int) -> ScoringReport:
        """The report, out of what was counted."""
        report = ScoringReport(
            kind=JobKind.SCORING,
            job=job,
            items=self.items.items(total),
            committee=self.committee.report(),
            systems=self._systems(),
            usage=self.items.usage(job),
            notes=(),
        )
        return report.model_copy(update={"notes": tuple(self._notes(report))})

    def _systems(self) -> tuple[SystemScore, ...]:
        scores = [tally.report(system) for system, tally in self.systems.items()]
        return tuple(sorted(scores, key=lambda score: (score.mean is None, -(score.mean or 0), score.system or "")))

    def _notes(self, report: ScoringReport) -> Iterator[Note]:
        yield from on_items(report.items, self.items, "prompt", "have no score: they are in no mean")
        yield from on_clusters(report.systems)
        yield from on_systems(self.systems.omitted)
