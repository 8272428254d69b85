"""How sure a rate is: Wilson's interval, the cluster bootstrap, and Student's t over cluster means.

Guarantee: pure and repeatable. A rate over nothing is None, and so is an interval over one cluster.

Items that share a prompt or a vignette are not independent. Wilson's interval takes them as if they were, so with few
clusters it is too narrow by far: it is a screening figure. The cluster bootstrap is the headline.
"""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

CONFIDENCE = 0.95
RESAMPLES = 5_000
FEW_CLUSTERS = 30  # below it, intervals over clusters are too narrow to be relied on (Cameron & Miller 2015)
MOST_KINDS = 1_000  # of clusters that are drawn one by one
_CELLS = 2_000_000  # resampled counts held at once


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided interval at the level `CONFIDENCE`."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Proportion:
    """`count` of `n`; a tie may count as a half. `rate` and `wilson` are None when n is 0."""

    count: float
    n: int
    rate: float | None
    wilson: Interval | None


@dataclass(frozen=True, slots=True)
class ClusteredMean:
    """The mean of `items` values that fall into `clusters` groups.

    `bootstrap` is the percentile interval of `mean` over resampled clusters. `t` is the interval around `cluster_mean`,
    which weighs every cluster alike, with clusters - 1 degrees of freedom. Means are None without items, intervals with
    fewer than two clusters.
    """

    items: int
    clusters: int
    mean: float | None
    bootstrap: Interval | None
    cluster_mean: float | None
    t: Interval | None


def proportion(count: float, n: int) -> Proportion:
    """A rate with Wilson's score interval (1927), for n independent trials. ValueError unless 0 <= count <= n."""
    if not 0 <= count <= n:
        raise ValueError(f"{count} of {n} is no proportion")
    if n == 0:
        return Proportion(count, n, None, None)
    low, high = proportion_confint(count, n, alpha=1 - CONFIDENCE, method="wilson")
    return Proportion(count, n, count / n, Interval(float(low), float(high)))


def cluster_key(cluster: str | None, seq: int) -> int:
    """The 64-bit key of an item's cluster; an item without one is a cluster of its own. Keeps no text."""
    name = f"item {seq}" if cluster is None else f"cluster {cluster}"
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def clustered_mean(
    sums: NDArray[np.float64], sizes: NDArray[np.int64], clusters: NDArray[np.uint64], seed: int = 0
) -> ClusteredMean:
    """The mean of values with intervals that respect their clusters.

    The values come in n groups, each within one cluster: their `sums` (n,), how many they are (`sizes` (n,), at least
    1) and the groups' cluster keys (`clusters` (n,)). Nothing else of the values matters.
    """
    if not len(sums):
        return ClusteredMean(0, 0, None, None, None, None)
    _, member = np.unique(clusters, return_inverse=True)
    cluster_sums = np.bincount(member, weights=sums).astype(np.float64)
    cluster_sizes = np.bincount(member, weights=sizes).astype(np.int64)
    means = cluster_sums / cluster_sizes
    items = int(cluster_sizes.sum())
    return ClusteredMean(
        items=items,
        clusters=len(means),
        mean=float(cluster_sums.sum() / items),
        bootstrap=_bootstrap(cluster_sums, cluster_sizes, seed) if len(means) > 1 else None,
        cluster_mean=float(means.mean()),
        t=_t_interval(means) if len(means) > 1 else None,
    )


def _bootstrap(sums: NDArray[np.float64], sizes: NDArray[np.int64], seed: int) -> Interval:
    """The percentile interval of the item mean when whole clusters are drawn with replacement.

    Efron & Tibshirani (1993), chapter 13.

    Clusters of equal sum and size are interchangeable, so their counts are drawn instead of their names: the same
    distribution, and a million one-item clusters cost no more than the three values that an item can have. Where they
    are of too many kinds for that, they are first joined at random into groups: sums of independent clusters, so the
    spread of the mean that they show has the same expectation.
    """
    kinds, multiplicity = np.unique(np.column_stack([sums, sizes]), axis=0, return_counts=True)
    generator = np.random.default_rng(seed)
    if len(kinds) > MOST_KINDS:
        shuffled = generator.permutation(np.repeat(kinds, multiplicity, axis=0))
        kinds = np.array([group.sum(axis=0) for group in np.array_split(shuffled, MOST_KINDS)])
        multiplicity = np.ones_like(multiplicity, shape=MOST_KINDS)
    draws = int(multiplicity.sum())
    block = max(1, _CELLS // len(kinds))
    means = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, block):
        part = means[start : start + block]
        drawn = generator.multinomial(draws, multiplicity / draws, size=len(part)) @ kinds
        part[:] = drawn[:, 0] / drawn[:, 1]
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(high))


def _t_interval(means: NDArray[np.float64]) -> Interval:
    """Student's interval for the mean of the cluster means, which may leave [0, 1]."""
    error = stats.sem(means)
    if error == 0:
        return Interval(float(means.mean()), float(means.mean()))
    low, high = stats.t.interval(CONFIDENCE, df=len(means) - 1, loc=means.mean(), scale=error)
    return Interval(float(low), float(high))
