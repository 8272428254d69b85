"""Building a report: one pass over a job's items.

Guarantee: pure, and bounded: it keeps a few bytes an item and no text but the names of systems, of which it follows the
first `MAX_SYSTEMS`. What is undefined is None. Failed items and abstentions stand beside the rates, never in them.
"""

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.contract import reports as wire
from services.judging.opinion import Opinion
from services.stats.agreement import agreement
from services.stats.intervals import FEW_CLUSTERS, Interval, cluster_key, clustered_mean, proportion
from services.stats.position import position
from services.vocabulary import Decide, Flag, ItemError, ItemStatus, Mode, Order, Orders, Winner

MAX_SYSTEMS = 100
NO_SYSTEM = -1
ANSWERS = (Winner.A, Winner.TIE, Winner.B)  # the rows and columns of every table, and the halves: 2, 1, 0
Table = NDArray[np.int64]
Halves = NDArray[np.int8]
Keys = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One heard item: its verdict, what its caller said of it, and the opinion that was formed. None where none was."""

    seq: int
    status: ItemStatus
    winner: Winner | None
    error: ItemError | None
    label: Winner | None
    cluster: str | None
    systems: tuple[str | None, str | None]
    opinion: Opinion | None
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


def item_row(verdict: Mapping[Any, Any], facets: str, opinion: Mapping[str, Any] | None) -> ItemRow:
    """A row out of what is stored: the verdict's columns, the item's facets (JSON text), the opinion's JSON object."""
    said = json.loads(facets)
    return ItemRow(
        seq=verdict["seq"],
        status=ItemStatus(verdict["status"]),
        winner=Winner(verdict["winner"]) if verdict["winner"] else None,
        error=ItemError(verdict["error_code"]) if verdict["error_code"] else None,
        label=Winner(said["label"]) if said.get("label") else None,
        cluster=said.get("cluster"),
        systems=tuple(said.get("systems") or (None, None)),
        opinion=Opinion.from_json(opinion) if opinion else None,
        calls=verdict["calls"],
        prompt_tokens=verdict["prompt_tokens"],
        cached_tokens=verdict["cached_tokens"],
        completion_tokens=verdict["completion_tokens"],
    )


def build(job: wire.ReportedJob, total: int, rows: Iterable[ItemRow]) -> wire.Report:
    """The report of a job of `total` items over the heard ones. `rows` is consumed once, in any order."""
    tally = _Tally()
    for row in rows:
        tally.add(row)
    return tally.report(job, total)


def _table() -> Table:
    return np.zeros((len(ANSWERS), len(ANSWERS)), dtype=np.int64)


@dataclass(slots=True)
class _Tally:
    """What one pass keeps: counts, and for each decided item its value, its cluster's key and its systems' numbers."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[ItemError] = field(default_factory=Counter)
    halves: "array[int]" = field(default_factory=lambda: array("b"))
    clusters: "array[int]" = field(default_factory=lambda: array("Q"))
    first: "array[int]" = field(default_factory=lambda: array("h"))
    second: "array[int]" = field(default_factory=lambda: array("h"))
    systems: dict[str, int] = field(default_factory=dict)
    labelled: Table = field(default_factory=_table)  # verdict by label
    orders: Table = field(default_factory=_table)  # answer as given by answer swapped
    compared: dict[str, Table] = field(
        default_factory=lambda: {"given": _table(), "swapped": _table(), "verdict": _table()}
    )  # each by label, over the same items

    def add(self, row: ItemRow) -> None:
        """Count one item."""
        self.counts.update(
            heard=1,
            succeeded=row.status is ItemStatus.SUCCEEDED,
            labelled=row.label is not None,
            clustered=row.cluster is not None,
            calls=row.calls,
            prompt_tokens=row.prompt_tokens,
            cached_tokens=row.cached_tokens,
            completion_tokens=row.completion_tokens,
        )
        if row.error is not None:
            self.errors[row.error] += 1
        given, swapped = self._add_opinion(row.opinion) if row.opinion else (None, None)
        if row.winner is None:
            return
        verdict = ANSWERS.index(row.winner)
        self.halves.append(2 - verdict)
        self.clusters.append(cluster_key(row.cluster, row.seq))
        self.first.append(self._number(row.systems[0]))
        self.second.append(self._number(row.systems[1]))
        if row.label is None:
            return
        label = ANSWERS.index(row.label)
        self.labelled[verdict, label] += 1
        if given is not None and swapped is not None:
            for name, answer in (("given", given), ("swapped", swapped), ("verdict", verdict)):
                self.compared[name][answer, label] += 1

    def _add_opinion(self, opinion: Opinion) -> tuple[int | None, int | None]:
        """Count how an item was heard. Returns the hard answers of the given and the swapped order, as indices."""
        sides = opinion.votes.values()
        self.counts.update(
            injection_suspected=Flag.INJECTION_SUSPECTED in opinion.flags,
            conflicting=Flag.CONFLICTING in opinion.flags,
            valid=opinion.valid,
            samples=opinion.valid + opinion.invalid,
            forced=opinion.forced,
            without_p=opinion.without_p,
            first_slot=opinion.first_slot,
            sided=sum(votes.get(side, 0) for votes in sides for side in (Winner.A, Winner.B)),
        )
        given, swapped = (_hard_answer(opinion.votes.get(order, {})) for order in (Order.AB, Order.BA))
        if given is not None and swapped is not None:
            self.orders[given, swapped] += 1
        return given, swapped

    def _number(self, system: str | None) -> int:
        if system is None:
            return NO_SYSTEM
        if system not in self.systems:
            if len(self.systems) == MAX_SYSTEMS:
                self.counts["systems_omitted"] += 1
                return NO_SYSTEM
            self.systems[system] = len(self.systems)
        return self.systems[system]

    def report(self, job: wire.ReportedJob, total: int) -> wire.Report:
        """The report, out of what was counted."""
        n = self.counts
        halves = np.asarray(self.halves, dtype=np.int8)
        clusters = np.asarray(self.clusters, dtype=np.uint64)
        a_wins = _win_rate(halves, clusters)
        systems = self._systems(halves, clusters)
        seconds = (job.ended_at - job.started_at).total_seconds() if job.started_at and job.ended_at else None
        report = wire.Report(
            job=job,
            items=wire.Items(
                total=total,
                heard=n["heard"],
                succeeded=_share(n["succeeded"], n["heard"]),
                failed=_share(n["heard"] - n["succeeded"], n["heard"]),
                errors=dict(self.errors),
                ties=_share(a_wins.ties, n["succeeded"]),
                abstained=_share(n["succeeded"] - a_wins.items, n["succeeded"]),
                injection_suspected=_share(n["injection_suspected"], n["heard"]),
                conflicting=_share(n["conflicting"], n["heard"]),
            ),
            sides={"A": a_wins, "B": _win_rate(2 - halves, clusters)},
            systems=systems,
            labels=self._labels() if n["labelled"] else None,
            position=wire.Position.model_validate(position(n["first_slot"], n["sided"], self.orders)),
            answers=wire.Answers(
                valid=_share(n["valid"], n["samples"]),
                forced=None if job.mode is Mode.DIRECT else _share(n["forced"], n["valid"]),
            ),
            usage=wire.Usage(
                calls=n["calls"],
                prompt_tokens=n["prompt_tokens"],
                cached=_share(n["cached_tokens"], n["prompt_tokens"]),
                completion_tokens=n["completion_tokens"],
                seconds=seconds,
                calls_per_second=n["calls"] / seconds if seconds else None,
            ),
            notes=(),
        )
        return report.model_copy(update={"notes": tuple(self._notes(report))})

    def _systems(self, halves: Halves, clusters: Keys) -> tuple[wire.SystemWinRate, ...]:
        """The win rate of each system over the items that compare it with another one, best first."""
        first, second = (np.asarray(side, dtype=np.int16) for side in (self.first, self.second))
        rates = []
        for system, number in self.systems.items():
            as_first = (first == number) & (second != number)
            as_second = (second == number) & (first != number)
            rate = _win_rate(
                np.concatenate([halves[as_first], 2 - halves[as_second]]),
                np.concatenate([clusters[as_first], clusters[as_second]]),
            )
            rates.append(wire.SystemWinRate(system=system, **dict(rate)))
        return tuple(sorted(rates, key=lambda rate: -1 if rate.rate is None else rate.rate, reverse=True))

    def _labels(self) -> wire.LabelAgreement:
        compared = {name: wire.Agreement.model_validate(agreement(table)) for name, table in self.compared.items()}
        return wire.LabelAgreement(
            labelled=self.counts["labelled"],
            verdict=wire.Agreement.model_validate(agreement(self.labelled)),
            orders=wire.OrdersCompared(**compared) if self.compared["verdict"].any() else None,
        )

    def _notes(self, report: wire.Report) -> Iterator[wire.Note]:
        items, first_slot = report.items, report.position.first_slot
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
        if report.job.orders is Orders.GIVEN:
            yield _note("one_order", "Heard in the given order only: position bias cannot be told from preference.")
        elif first_slot.rate is not None and not _holds(first_slot.wilson, 0.5):
            slot = "first" if first_slot.rate > 0.5 else "second"
            yield _note("position_bias", f"Single answers lean to the {slot} slot, whatever stands in it.")
        if report.job.decide is Decide.SOFT and (without := self.counts["without_p"]):
            yield _note(
                "without_probability",
                f"{without} of {self.counts['valid']} answers have no probability: they count as their votes.",
            )
        tie = ANSWERS.index(Winner.TIE)
        if undecided := int(self.labelled[tie].sum() - self.labelled[tie, tie]):
            yield _note(
                "ties_against_labels", f"{undecided} verdicts are ties where the label names a side: not agreement."
            )
        if report.labels and _holds(report.labels.verdict.raw.wilson, report.labels.verdict.base.rate):
            yield _note(
                "within_chance",
                "Agreement with the labels cannot be told from always giving the most frequent one: its 95 % interval "
                "holds that rate. More items would narrow it.",
            )
        if self.counts["systems_omitted"]:
            yield _note("systems_omitted", f"More than {MAX_SYSTEMS} systems: the ones seen later are left out.")


def _hard_answer(votes: Mapping[Winner, int]) -> int | None:
    """What one order's votes say, as an index of `ANSWERS`: the side with more, else a tie; None without votes."""
    if not any(votes.values()):
        return None
    lead = votes.get(Winner.A, 0) - votes.get(Winner.B, 0)
    return ANSWERS.index(Winner.A if lead > 0 else Winner.B if lead < 0 else Winner.TIE)


def _win_rate(halves: Halves, clusters: Keys) -> wire.WinRate:
    """Win rate out of the halves that were won of each item (2 a win, 1 a tie)."""
    mean = clustered_mean(halves / 2, clusters)
    won = proportion(float(halves.sum()) / 2, len(halves))
    return wire.WinRate(
        items=len(halves),
        wins=int(np.count_nonzero(halves == 2)),
        ties=int(np.count_nonzero(halves == 1)),
        losses=int(np.count_nonzero(halves == 0)),
        rate=won.rate,
        clusters=mean.clusters,
        bootstrap=_interval(mean.bootstrap),
        cluster_mean=mean.cluster_mean,
        t=_interval(mean.t),
        wilson=_interval(won.wilson),
    )


def _share(count: int, n: int) -> wire.Proportion:
    return wire.Proportion.model_validate(proportion(count, n))


def _interval(interval: Interval | None) -> wire.Interval | None:
    return None if interval is None else wire.Interval.model_validate(interval)


def _holds(interval: wire.Interval | None, rate: float | None) -> bool:
    """True when `rate` lies in `interval`; False when either is undefined."""
    return interval is not None and rate is not None and interval.low <= rate <= interval.high


def _note(code: str, message: str) -> wire.Note:
    return wire.Note(code=code, message=message)
