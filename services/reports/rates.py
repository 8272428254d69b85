"""The rates of a report while items are counted: shares, win rates, mean scores.

Guarantee: pure, and independent of the order of the items. A win rate and a mean score keep a few bytes an item; the
rest is counts.
"""

from array import array
from collections.abc import Callable, ItemsView, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from services.contract.reports import parts as wire
from services.stats.intervals import ClusteredMean, clustered_mean, proportion
from services.vocabulary import Winner

MAX_SYSTEMS = 100

Kept = TypeVar("Kept")


def share(count: int, n: int) -> wire.Proportion:
    """`count` of `n` with its rate."""
    return wire.Proportion.model_validate(proportion(count, n))


def spent(counts: Mapping[str, int]) -> wire.Spent:
    """What the counted calls took. Classifiers' calls are in no rate of cached tokens: they do not tell these."""
    return wire.Spent(
        calls=counts["calls"],
        prompt_tokens=counts["prompt_tokens"],
        cached=share(counts["cached_tokens"], counts["prompt_tokens"] - counts["classified_tokens"]),
        completion_tokens=counts["completion_tokens"],
    )


def holds(interval: wire.Interval | None, rate: float | None) -> bool:
    """True when `rate` lies in `interval`; False when either is undefined."""
    return interval is not None and rate is not None and interval.low <= rate <= interval.high


class Followed(Generic[Kept]):
    """What is kept of each system, for the first `MAX_SYSTEMS` of them: names must not fill the memory."""

    def __init__(self, make: Callable[[], Kept]) -> None:
        self.omitted = 0  # how often another one was asked for
        self._make = make
        self._kept: dict[str | None, Kept] = {}

    def of(self, system: str | None) -> Kept | None:
        """What is kept of a system; None when it is not followed."""
        if system not in self._kept:
            if len(self._kept) == MAX_SYSTEMS:
                self.omitted += 1
                return None
            self._kept[system] = self._make()
        return self._kept[system]

    def items(self) -> ItemsView[str | None, Kept]:
        """Each system that is followed, and what is kept of it."""
        return self._kept.items()


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
            **_over_clusters(mean),
            pairs=mean.items,
            wins=wins,
            ties=ties,
            losses=losses,
            rate=rate.rate,
            wilson=None if rate.wilson is None else wire.Interval.model_validate(rate.wilson),
        )


@dataclass(slots=True)
class Scores:
    """The scores of texts: one an item, with its cluster's key."""

    clusters: "array[int]" = field(default_factory=lambda: array("Q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, cluster: int, score: float) -> None:
        """Count one item's text."""
        self.clusters.append(cluster)
        self.values.append(score)

    def mean(self) -> wire.MeanScore:
        """The mean over all texts."""
        values = np.asarray(self.values, dtype=np.float64)
        ones = np.ones(len(values), dtype=np.int64)
        mean = clustered_mean(values, ones, np.asarray(self.clusters, dtype=np.uint64))
        return wire.MeanScore(**_over_clusters(mean), texts=mean.items, mean=mean.mean)


def _over_clusters(mean: ClusteredMean) -> dict[str, Any]:
    """The fields of OverClusters."""
    return wire.OverClusters.model_validate(mean).model_dump()
