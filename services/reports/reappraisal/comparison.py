"""The comparison's part of a report: how the chosen texts fare against their items' baselines.

Guarantee: pure, and keeps a few bytes an item for each system that wrote baselines. An item that the judge did not get
to, or could not answer, is in no rate; neither is a pair on which it abstains.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from services.contract.reports.parts import Note, ReportedJudge
from services.contract.reports.reappraisal import BaselineWinRate, ComparisonReport
from services.judging.opinion import Opinion
from services.judging.weighing import side
from services.reports.item import EVEN
from services.reports.judge import JudgeTally
from services.reports.notes import on_clusters, on_systems
from services.reports.rates import Followed, Wins, share
from services.reports.reappraisal.item import ReappraisalRow, comparison
from services.stats.intervals import cluster_key
from services.vocabulary import Flag, ItemError, Winner


@dataclass(slots=True)
class ComparisonTally:
    """What one pass keeps of a judge's comparisons: the wins are those of the chosen texts, which `writer` wrote."""

    writer: str
    asked: ReportedJudge
    judge: JudgeTally = field(default_factory=JudgeTally)
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[ItemError] = field(default_factory=Counter)
    overall: Wins = field(default_factory=Wins)
    baselines: Followed[Wins] = field(default_factory=lambda: Followed(Wins))

    def add(self, row: ReappraisalRow) -> None:
        """Count one item."""
        if row.selected is None:
            return
        self.counts["chosen"] += 1
        if row.opinion is None:
            return
        followed = (None if self.baselines.of(system) is None else system for system in row.baselines)
        self.judge.add(comparison(row, row.opinion, (self.writer, *followed)), row.opinion)
        self.counts.update(
            heard=1,
            injection_suspected=Flag.INJECTION_SUSPECTED in row.opinion.flags,
            conflicting=Flag.CONFLICTING in row.opinion.flags,
        )
        if row.opinion.error is not None:
            self.errors[row.opinion.error] += 1
            return
        self._add_wins(row, row.opinion)

    def _add_wins(self, row: ReappraisalRow, opinion: Opinion) -> None:
        cluster = cluster_key(row.cluster, row.seq)
        games: defaultdict[str | None, Counter[Winner]] = defaultdict(Counter)
        every: Counter[Winner] = Counter()
        for baseline, winner in _answers(opinion):
            games[row.baselines[baseline]][winner] += 1
            every[winner] += 1
        self.counts.update(compared=1, pairs=len(row.baselines), answered=every.total(), tied=every[Winner.TIE])
        if every:
            self.overall.add(cluster, every)
        for system, pairs in games.items():
            if (wins := self.baselines.of(system)) is not None:
                wins.add(cluster, pairs)

    def report(self) -> ComparisonReport:
        """The comparison's part, out of what was counted."""
        n = self.counts
        rates = [BaselineWinRate(system=system, **dict(wins.rate())) for system, wins in self.baselines.items()]
        rates.sort(key=lambda rate: (1 if rate.rate is None else -rate.rate, rate.system or ""))
        return ComparisonReport(
            compared=share(n["compared"], n["chosen"]),
            late=n["chosen"] - n["heard"],
            errors=dict(self.errors),
            ties=share(n["tied"], n["answered"]),
            abstained=share(n["pairs"] - n["answered"], n["pairs"]),
            injection_suspected=share(n["injection_suspected"], n["heard"]),
            conflicting=share(n["conflicting"], n["heard"]),
            overall=self.overall.rate(),
            baselines=tuple(rates),
            judge=self.judge.report(self.asked, n["chosen"], alone=True),
        )

    def notes(self, report: ComparisonReport) -> Iterator[Note]:
        """What a reader of the figures must know."""
        yield from on_clusters([report.overall, *report.baselines], "clusters (vignettes)")
        yield from self.judge.notes(self.asked, report.judge)
        yield from on_systems(self.baselines.omitted)


def _answers(opinion: Opinion) -> Iterator[tuple[int, Winner]]:
    """The baselines that were met with an answer, by index, and what it was: `A` is the chosen text.

    Of several baselines a judge that compares says who wins each pair; of one that grades texts alone the grades tell.
    """
    if opinion.pairs:
        yield from ((pair.second - 1, pair.winner) for pair in opinion.pairs if pair.winner is not None)
    elif opinion.standing is not None:
        for baseline, p in enumerate(opinion.standing.matrix[0][1:]):
            assert p is not None
            yield baseline, side(p, EVEN)
    elif opinion.winner is not None:
        yield 0, opinion.winner
