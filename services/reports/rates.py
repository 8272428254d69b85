"""The rates of a report while items are counted: shares, win rates, agreement with labels.

Guarantee: pure, and independent of the order of the items. A win rate keeps a few bytes an item; the rest is counts.
"""

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.contract import reports as wire
from services.reports.item import ItemRow
from services.stats.agreement import agreement
from services.stats.intervals import Interval, clustered_mean, proportion
from services.vocabulary import Winner

Table = NDArray[np.int64]
ANSWERS = (Winner.A, Winner.TIE, Winner.B)  # the rows and columns of every table


def empty_table() -> Table:
    """Counts of two answers, (3, 3), all 0."""
    return np.zeros((len(ANSWERS), len(ANSWERS)), dtype=np.int64)


def share(count: int, n: int) -> wire.Proportion:
    """`count` of `n` with its rate."""
    return wire.Proportion.model_validate(proportion(count, n))


def spent(counts: Mapping[str, int]) -> wire.Spent:
    """What the counted calls took."""
    return wire.Spent(
        calls=counts["calls"],
        prompt_tokens=counts["prompt_tokens"],
        cached=share(counts["cached_tokens"], counts["prompt_tokens"]),
        completion_tokens=counts["completion_tokens"],
    )


def agreed(table: Table) -> wire.Agreement:
    """Agreement out of a table of answers by label."""
    return wire.Agreement.model_validate(agreement(table))


def holds(interval: wire.Interval | None, rate: float | None) -> bool:
    """True when `rate` lies in `interval`; False when either is undefined."""
    return interval is not None and rate is not None and interval.low <= rate <= interval.high


@dataclass(slots=True)
class Wins:
    """The pairs that a side or a system won, tied and lost: one entry an item, with its cluster's key."""

    clusters: "array[int]" = field(default_factory=lambda: array("Q"))
    won: "array[int]" = field(default_factory=lambda: array("B"))  # 16 candidates make 120 pairs
    tied: "array[int]" = field(default_factory=lambda: array("B"))
    lost: "array[int]" = field(default_factory=lambda: array("B"))

    def add(self, cluster: int, pairs: Mapping[Winner, int]) -> None:
        """Count one item: how many of its pairs, at least one, came to which winner; these are the wins of `A`."""
        self.clusters.append(cluster)
        self.won.append(pairs.get(Winner.A, 0))
        self.tied.append(pairs.get(Winner.TIE, 0))
        self.lost.append(pairs.get(Winner.B, 0))

    @property
    def mirrored(self) -> "Wins":
        """The wins of the other side."""
        return Wins(self.clusters, won=self.lost, tied=self.tied, lost=self.won)

    def rate(self) -> wire.WinRate:
        """The win rate over all pairs."""
        won, tied, lost = (np.asarray(kind, dtype=np.int64) for kind in (self.won, self.tied, self.lost))
        mean = clustered_mean(won + tied / 2, won + tied + lost, np.asarray(self.clusters, dtype=np.uint64))
        wins, ties, losses = (int(kind.sum()) for kind in (won, tied, lost))
        rate = proportion(wins + ties / 2, mean.items)
        return wire.WinRate(
            pairs=mean.items,
            wins=wins,
            ties=ties,
            losses=losses,
            rate=rate.rate,
            clusters=mean.clusters,
            bootstrap=_interval(mean.bootstrap),
            cluster_mean=mean.cluster_mean,
            t=_interval(mean.t),
            wilson=_interval(rate.wilson),
        )


@dataclass(slots=True)
class Labelled:
    """Answers on labelled items. `table`: of two candidates, answer by label. Of more, an answer is right or not."""

    table: Table = field(default_factory=empty_table)
    counts: Counter[str] = field(default_factory=Counter)
    labels: Counter[Winner | int] = field(default_factory=Counter)  # of the answered items with more than two

    def add(self, row: ItemRow, winner: Winner | int | None) -> None:
        """Count the answer on an item, None where there is none; an item without a label does not count."""
        if row.label is None:
            return
        self.counts.update(items=1, ranked=not row.is_pair)
        if winner is None:
            return
        if isinstance(winner, Winner) and isinstance(row.label, Winner) and row.is_pair:
            self.table[ANSWERS.index(winner), ANSWERS.index(row.label)] += 1
        else:
            self.counts.update(right=winner == row.label)
            self.labels[row.label] += 1

    @property
    def best(self) -> wire.Accuracy | None:
        """Of the items with more than two candidates and an answer, those where it is right; None without a label."""
        if not self.counts["ranked"]:
            return None
        answered = self.labels.total()
        return wire.Accuracy(
            raw=share(self.counts["right"], answered),
            base=share(max(self.labels.values(), default=0), answered),
        )


def _interval(interval: Interval | None) -> wire.Interval | None:
    return None if interval is None else wire.Interval.model_validate(interval)
