"""Building the report of a judgement: one pass over its items.

Guarantee: pure, and bounded: it keeps a few bytes a candidate and no text but the names of systems, of which it follows
the first `MAX_SYSTEMS`. What is undefined is None. Failed items and abstentions stand beside the rates, never in them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from services.contract.reports.judgement import (
    Items,
    JudgementReport,
    LabelAgreement,
    Panel,
    ReportedJudgement,
    SystemWinRate,
)
from services.contract.reports.parts import Note
from services.reports.item import ItemRow
from services.reports.judge import JudgeTally
from services.reports.labels import ANSWERS, Labelled, agreed
from services.reports.notes import note, on_clusters, on_items, on_systems
from services.reports.rates import Followed, Wins, holds, share
from services.reports.settled import SettledTally
from services.stats.intervals import cluster_key
from services.vocabulary import Flag, JobKind, Winner


def build(job: ReportedJudgement, total: int, rows: Iterable[ItemRow]) -> JudgementReport:
    """The report of a job of `total` items over the heard ones. `rows` is consumed once, in any order."""
    tally = _Tally({judge.name: JudgeTally() for judge in job.judges})
    for row in rows:
        tally.add(row)
    return tally.report(job, total)


@dataclass(slots=True)
class _Tally:
    """What one pass keeps: counts, the wins of side A and of each system, and a tally a judge."""

    judges: dict[str, JudgeTally]
    items: SettledTally = field(default_factory=SettledTally)
    counts: Counter[str] = field(default_factory=Counter)
    disagreement: float = 0.0
    side_a: Wins = field(default_factory=Wins)
    systems: Followed[Wins] = field(default_factory=lambda: Followed(Wins))
    labelled: Labelled = field(default_factory=Labelled)

    def add(self, row: ItemRow) -> None:
        """Count one item."""
        suspected = any(Flag.INJECTION_SUSPECTED in opinion.flags for opinion in row.opinions)
        self.items.add(row, suspected=suspected)
        row = replace(row, systems=tuple(map(self._followed, row.systems)))
        answers = sum(opinion.error is None for opinion in row.opinions)
        self.counts.update(
            answered=row.winner is not None,
            tied=row.winner is Winner.TIE,
            partial=row.succeeded and answers < len(self.judges),
            labelled=row.label is not None,
            conflicting=any(Flag.CONFLICTING in opinion.flags for opinion in row.opinions),
        )
        if row.disagreement is not None:
            self.counts.update(compared=1, unanimous=not row.disagreement)
            self.disagreement += row.disagreement
        for opinion in row.opinions:
            self.judges[opinion.judge].add(row, opinion)
        self.labelled.add(row, row.winner)
        self._add_wins(row)

    def _followed(self, system: str | None) -> str | None:
        """The system's name as long as it is followed."""
        return None if system is None or self.systems.of(system) is None else system

    def _add_wins(self, row: ItemRow) -> None:
        """Count the item's pairs for the systems that they compare, and its sides where it has but two candidates."""
        cluster = cluster_key(row.cluster, row.seq)
        games: defaultdict[str, Counter[Winner]] = defaultdict(Counter)
        for first, second, winner in row.pairs(alone=len(self.judges) == 1):
            ours, theirs = row.systems[first], row.systems[second]
            if row.is_pair:
                self.side_a.add(cluster, {winner: 1})
            if ours is not None and ours != theirs:
                games[ours][winner] += 1
            if theirs is not None and ours != theirs:
                games[theirs][winner.mirrored] += 1
        for system, pairs in games.items():
            wins = self.systems.of(system)
            assert wins is not None
            wins.add(cluster, pairs)

    def report(self, job: ReportedJudgement, total: int) -> JudgementReport:
        """The report, out of what was counted."""
        n, items = self.counts, self.items.items(total)
        succeeded, alone = items.succeeded.count, len(job.judges) == 1
        report = JudgementReport(
            kind=JobKind.JUDGEMENT,
            job=job,
            items=Items(
                **dict(items),
                ties=share(n["tied"], succeeded),
                abstained=share(succeeded - n["answered"], succeeded),
                conflicting=share(n["conflicting"], items.heard),
            ),
            sides={"A": self.side_a.rate(), "B": self.side_a.mirrored.rate()},
            systems=self._systems(),
            labels=self._labels() if n["labelled"] else None,
            panel=None if alone else self._panel(succeeded),
            judges=tuple(self.judges[judge.name].report(judge, items.heard, alone=alone) for judge in job.judges),
            usage=self.items.usage(job),
            notes=(),
        )
        return report.model_copy(update={"notes": tuple(self._notes(report))})

    def _systems(self) -> tuple[SystemWinRate, ...]:
        """The win rate of each system over the pairs that compare it with another one, best first."""
        rates = [
            SystemWinRate(system=system, **dict(wins.rate()))
            for system, wins in self.systems.items()
            if system is not None
        ]
        return tuple(sorted(rates, key=lambda rate: (1 if rate.rate is None else -rate.rate, rate.system)))

    def _labels(self) -> LabelAgreement:
        table, best = self.labelled.table, self.labelled.best
        return LabelAgreement(labelled=self.counts["labelled"], verdict=agreed(table), best=best)

    def _panel(self, succeeded: int) -> Panel:
        n = self.counts
        return Panel(
            disagreement=self.disagreement / n["compared"] if n["compared"] else None,
            unanimous=share(n["unanimous"], n["compared"]),
            partial=share(n["partial"], succeeded),
        )

    def _notes(self, report: JudgementReport) -> Iterator[Note]:
        yield from on_items(report.items, self.items, "prompt", "are in none of the rates")
        yield from on_clusters([report.sides["A"], *report.systems])
        for judge, part in zip(report.job.judges, report.judges, strict=True):
            yield from self.judges[judge.name].notes(judge, part)
        tie = ANSWERS.index(Winner.TIE)
        if undecided := int(self.labelled.table[tie].sum() - self.labelled.table[tie, tie]):
            yield note(
                "ties_against_labels", f"{undecided} verdicts are ties where the label names a side: not agreement."
            )
        if report.labels and holds(report.labels.verdict.raw.wilson, report.labels.verdict.base.rate):
            yield note(
                "within_chance",
                "Agreement with the labels cannot be told from always giving the most frequent one: its 95 % interval "
                "holds that rate. More items would narrow it.",
            )
        yield from on_systems(self.systems.omitted)
