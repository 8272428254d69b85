"""Building a report: one pass over a job's items.

Guarantee: pure, and bounded: it keeps a few bytes a candidate and no text but the names of systems, of which it follows
the first `MAX_SYSTEMS`. What is undefined is None. Failed items and abstentions stand beside the rates, never in them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from services.contract import reports as wire
from services.reports.item import ItemRow
from services.reports.judge import JudgeTally
from services.reports.rates import ANSWERS, Labelled, Wins, agreed, holds, share, spent
from services.stats.intervals import FEW_CLUSTERS, cluster_key
from services.vocabulary import Flag, ItemError, ItemStatus, Winner

MAX_SYSTEMS = 100


def build(job: wire.ReportedJob, total: int, rows: Iterable[ItemRow]) -> wire.Report:
    """The report of a job of `total` items over the heard ones. `rows` is consumed once, in any order."""
    tally = _Tally({judge.name: JudgeTally() for judge in job.judges})
    for row in rows:
        tally.add(row)
    return tally.report(job, total)


@dataclass(slots=True)
class _Tally:
    """What one pass keeps: counts, the wins of side A and of each system, and a tally a judge."""

    judges: dict[str, JudgeTally]
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[ItemError] = field(default_factory=Counter)
    disagreement: float = 0.0
    side_a: Wins = field(default_factory=Wins)
    systems: dict[str, Wins] = field(default_factory=dict)
    labelled: Labelled = field(default_factory=Labelled)

    def add(self, row: ItemRow) -> None:
        """Count one item."""
        row = replace(row, systems=tuple(map(self._followed, row.systems)))
        succeeded = row.status is ItemStatus.SUCCEEDED
        answers = sum(opinion.error is None for opinion in row.opinions)
        self.counts.update(
            heard=1,
            succeeded=succeeded,
            answered=row.winner is not None,
            tied=row.winner is Winner.TIE,
            partial=succeeded and answers < len(self.judges),
            labelled=row.label is not None,
            clustered=row.cluster is not None,
            injection_suspected=any(Flag.INJECTION_SUSPECTED in opinion.flags for opinion in row.opinions),
            conflicting=any(Flag.CONFLICTING in opinion.flags for opinion in row.opinions),
            calls=row.calls,
            prompt_tokens=row.prompt_tokens,
            cached_tokens=row.cached_tokens,
            completion_tokens=row.completion_tokens,
        )
        if row.error is not None:
            self.errors[row.error] += 1
        if row.disagreement is not None:
            self.counts.update(compared=1, unanimous=not row.disagreement)
            self.disagreement += row.disagreement
        for opinion in row.opinions:
            self.judges[opinion.judge].add(row, opinion)
        self.labelled.add(row, row.winner)
        self._add_wins(row)

    def _followed(self, system: str | None) -> str | None:
        """The system's name as long as it is followed."""
        if system is None or system in self.systems:
            return system
        if len(self.systems) == MAX_SYSTEMS:
            self.counts["systems_omitted"] += 1
            return None
        self.systems[system] = Wins()
        return system

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
            self.systems[system].add(cluster, pairs)

    def report(self, job: wire.ReportedJob, total: int) -> wire.Report:
        """The report, out of what was counted."""
        n = self.counts
        alone = len(job.judges) == 1
        seconds = (job.ended_at - job.started_at).total_seconds() if job.started_at and job.ended_at else None
        report = wire.Report(
            job=job,
            items=wire.Items(
                total=total,
                heard=n["heard"],
                succeeded=share(n["succeeded"], n["heard"]),
                failed=share(n["heard"] - n["succeeded"], n["heard"]),
                errors=dict(self.errors),
                ties=share(n["tied"], n["succeeded"]),
                abstained=share(n["succeeded"] - n["answered"], n["succeeded"]),
                injection_suspected=share(n["injection_suspected"], n["heard"]),
                conflicting=share(n["conflicting"], n["heard"]),
            ),
            sides={"A": self.side_a.rate(), "B": self.side_a.mirrored.rate()},
            systems=self._systems(),
            labels=self._labels() if n["labelled"] else None,
            panel=None if alone else self._panel(),
            judges=tuple(self.judges[judge.name].report(judge, n["heard"], alone=alone) for judge in job.judges),
            usage=wire.Usage(
                **dict(spent(n)), seconds=seconds, calls_per_second=n["calls"] / seconds if seconds else None
            ),
            notes=(),
        )
        return report.model_copy(update={"notes": tuple(self._notes(report))})

    def _systems(self) -> tuple[wire.SystemWinRate, ...]:
        """The win rate of each system over the pairs that compare it with another one, best first."""
        rates = [wire.SystemWinRate(system=system, **dict(wins.rate())) for system, wins in self.systems.items()]
        return tuple(sorted(rates, key=lambda rate: (1 if rate.rate is None else -rate.rate, rate.system)))

    def _labels(self) -> wire.LabelAgreement:
        return wire.LabelAgreement(
            labelled=self.counts["labelled"], verdict=agreed(self.labelled.table), best=self.labelled.best
        )

    def _panel(self) -> wire.Panel:
        n = self.counts
        return wire.Panel(
            disagreement=self.disagreement / n["compared"] if n["compared"] else None,
            unanimous=share(n["unanimous"], n["compared"]),
            partial=share(n["partial"], n["succeeded"]),
        )

    def _notes(self, report: wire.Report) -> Iterator[wire.Note]:
        items = report.items
        if items.heard < items.total:
            yield _note("incomplete", f"{items.heard} of {items.total} items were heard: all figures are over those.")
        if items.failed.count:
            yield _note("failures", f"{items.failed.count} failed items are in none of the rates.")
        if items.heard and not self.counts["clustered"]:
            yield _note(
                "no_clusters",
                "No item names a cluster, so each counts as one of its own. If items share a prompt, name it as their "
                "cluster: without, every interval here is too narrow.",
            )
        few = [rate.clusters for rate in (report.sides["A"], *report.systems) if 0 < rate.clusters < FEW_CLUSTERS]
        if few:
            yield _note(
                "few_clusters",
                f"As few as {min(few)} clusters: below {FEW_CLUSTERS} the intervals over clusters are too narrow.",
            )
        for judge, part in zip(report.job.judges, report.judges, strict=True):
            yield from self.judges[judge.name].notes(judge, part)
        tie = ANSWERS.index(Winner.TIE)
        if undecided := int(self.labelled.table[tie].sum() - self.labelled.table[tie, tie]):
            yield _note(
                "ties_against_labels", f"{undecided} verdicts are ties where the label names a side: not agreement."
            )
        if report.labels and holds(report.labels.verdict.raw.wilson, report.labels.verdict.base.rate):
            yield _note(
                "within_chance",
                "Agreement with the labels cannot be told from always giving the most frequent one: its 95 % interval "
                "holds that rate. More items would narrow it.",
            )
        if self.counts["systems_omitted"]:
            yield _note("systems_omitted", f"More than {MAX_SYSTEMS} systems: the ones seen later are left out.")


def _note(code: str, message: str) -> wire.Note:
    return wire.Note(code=code, judge=None, message=message)
