"""The intervals have the right values, and the cluster bootstrap covers where Wilson's interval does not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from services.stats.intervals import ClusteredMean, cluster_key, clustered_mean, proportion


def mean_of(values: NDArray[np.float64], clusters: NDArray[np.uint64]) -> ClusteredMean:
    """Of values that come one by one."""
    return clustered_mean(values, np.ones(len(values), dtype=np.int64), clusters)


def keys(*names: str) -> NDArray[np.uint64]:
    return np.array([cluster_key(name, 0) for name in names], dtype=np.uint64)


@pytest.mark.parametrize(
    ("count", "n", "rate", "low"),
    [(628, 720, 0.872, 0.846), (580.5, 720, 0.806, 0.776), (279, 480, 0.581, 0.537)],
)
def test_wilson_gives_the_lower_bounds_published_for_the_reappraisal_models(
    count: float, n: int, rate: float, low: float
) -> None:
    # the table in the model card of Reappraisal-4B-GRPO-Committee
    interval = proportion(count, n).wilson
    assert interval is not None
    assert (round(count / n, 3), round(interval.low, 3)) == (rate, low)


def wilson_lows(n: int, rate: float, step: float) -> dict[float, float]:
    """The lower bound of every count of n, in steps of 1 or 1/2, whose rate rounds to `rate`."""
    counts = [step * k for k in range(int(n / step) + 1) if round(step * k / n, 3) == rate]
    intervals = {count: proportion(count, n).wilson for count in counts}
    return {count: round(interval.low, 4) for count, interval in intervals.items() if interval is not None}


def test_one_published_lower_bound_needs_a_half_win_and_one_is_not_wilsons() -> None:
    # 0.806 of 720 with 0.776, and 0.771 of 240 with 0.718
    assert wilson_lows(720, 0.806, 1) == {580: 0.7751}
    assert wilson_lows(720, 0.806, 0.5) == {580: 0.7751, 580.5: 0.7758}
    assert wilson_lows(240, 0.771, 0.5) == {185: 0.7136}


def test_wilson_stays_inside_the_unit_interval_at_its_ends() -> None:
    nothing, everything = proportion(0, 10), proportion(10, 10)
    assert nothing.wilson is not None
    assert everything.wilson is not None
    assert nothing.wilson.low == 0
    assert nothing.wilson.high == pytest.approx(0.27753, abs=1e-5)  # 1.96^2 / (10 + 1.96^2)
    assert everything.wilson.high == pytest.approx(1)
    assert everything.wilson.high <= 1
    assert everything.wilson.low == pytest.approx(1 - 0.27753, abs=1e-5)


def test_a_rate_over_nothing_is_none() -> None:
    empty = proportion(0, 0)
    assert (empty.rate, empty.wilson) == (None, None)


@pytest.mark.parametrize(("count", "n"), [(11, 10), (-1, 10), (1, 0)])
def test_what_is_no_proportion_is_refused(count: int, n: int) -> None:
    with pytest.raises(ValueError, match="no proportion"):
        proportion(count, n)


def test_no_items_have_no_mean_and_no_interval() -> None:
    empty = mean_of(np.array([]), np.array([], dtype=np.uint64))
    assert (empty.items, empty.clusters, empty.mean, empty.bootstrap, empty.cluster_mean, empty.t) == (
        0,
        0,
        *[None] * 4,
    )


def test_one_cluster_has_a_mean_and_no_interval() -> None:
    one = mean_of(np.array([1.0, 0.0, 0.5]), keys("v", "v", "v"))
    assert (one.items, one.clusters, one.mean) == (3, 1, 0.5)
    assert (one.bootstrap, one.t) == (None, None)


def test_the_t_interval_has_clusters_less_one_degrees_of_freedom() -> None:
    values = np.array([0.2, 0.4, 0.6, 0.8])
    result = mean_of(values, keys("a", "b", "c", "d"))
    assert result.t is not None
    # mean 0.5, standard deviation 0.258199, standard error 0.129099, t(3; 0.975) = 3.182446
    assert result.t.low == pytest.approx(0.5 - 3.182446 * 0.129099, abs=1e-5)
    assert result.t.high == pytest.approx(0.5 + 3.182446 * 0.129099, abs=1e-5)


def test_the_item_mean_weighs_items_and_the_cluster_mean_weighs_clusters() -> None:
    result = mean_of(np.array([1.0, 1.0, 1.0, 0.0]), keys("a", "a", "a", "b"))
    assert result.mean == 0.75
    assert result.cluster_mean == 0.5


def test_clusters_that_agree_entirely_leave_no_width() -> None:
    result = mean_of(np.full(8, 0.5), keys(*"aabbccdd"))
    assert result.bootstrap is not None
    assert result.t is not None
    assert (result.bootstrap.low, result.bootstrap.high, result.t.low, result.t.high) == (0.5, 0.5, 0.5, 0.5)


def test_the_bootstrap_draws_whole_clusters() -> None:
    # six vignettes of 120 contests, wholly won or wholly lost: six observations, not 720
    values = np.repeat([1.0, 1.0, 1.0, 1.0, 1.0, 0.0], 120)
    clusters = np.repeat(keys(*"abcdef"), 120)
    result = mean_of(values, clusters)
    screening = proportion(float(values.sum()), len(values)).wilson
    assert result.bootstrap is not None
    assert screening is not None
    # losses among six draws follow Binomial(6, 1/6): P(<= 3) = 0.9913, P(<= 2) = 0.9377, so 2.5 % lies at three losses
    assert (result.bootstrap.low, result.bootstrap.high) == (0.5, 1.0)
    assert screening.low > 0.8


def test_the_bootstrap_agrees_with_scipy_on_clusters_of_unequal_size() -> None:
    generator = np.random.default_rng(7)
    sizes = generator.integers(1, 9, size=40)
    rates = generator.beta(2, 2, size=40)
    values = np.concatenate([generator.binomial(1, p, n) for p, n in zip(rates, sizes, strict=True)]).astype(float)
    clusters = np.repeat(np.arange(40, dtype=np.uint64), sizes)
    sums = np.bincount(clusters.astype(int), weights=values)

    def ratio(s: NDArray[np.float64], n: NDArray[np.int64], axis: int) -> NDArray[np.float64]:
        return s.sum(axis=axis) / n.sum(axis=axis)

    theirs = stats.bootstrap(
        (sums, sizes), ratio, paired=True, vectorized=True, method="percentile", n_resamples=5_000, rng=3
    ).confidence_interval
    ours = mean_of(values, clusters).bootstrap
    assert ours is not None
    assert ours.low == pytest.approx(theirs.low, abs=0.01)
    assert ours.high == pytest.approx(theirs.high, abs=0.01)


def test_equal_input_gives_equal_output_and_the_order_of_items_does_not_matter() -> None:
    generator = np.random.default_rng(1)
    values = generator.choice([0.0, 0.5, 1.0], size=200)
    clusters = generator.integers(0, 50, size=200).astype(np.uint64)
    shuffled = generator.permutation(200)
    assert mean_of(values, clusters) == mean_of(values[shuffled], clusters[shuffled])


def test_the_cluster_bootstrap_covers_where_wilson_does_not() -> None:
    """Clustered data with a known rate of 0.6: a 95 % interval should hold it in about 95 of 100 samples."""
    generator = np.random.default_rng(20)
    simulations, clusters, size, truth = 200, 60, 10, 0.6
    held = {"bootstrap": 0, "t": 0, "wilson": 0}
    for _ in range(simulations):
        rates = generator.beta(truth * 2, (1 - truth) * 2, size=clusters)  # intra-cluster correlation 1/3
        values = generator.binomial(1, np.repeat(rates, size)).astype(float)
        result = mean_of(values, np.repeat(np.arange(clusters, dtype=np.uint64), size))
        intervals = {
            "bootstrap": result.bootstrap,
            "t": result.t,
            "wilson": proportion(float(values.sum()), len(values)).wilson,
        }
        for name, interval in intervals.items():
            assert interval is not None
            held[name] += interval.low <= truth <= interval.high
    assert 0.90 <= held["bootstrap"] / simulations <= 0.98
    assert 0.91 <= held["t"] / simulations <= 0.99
    assert held["wilson"] / simulations < 0.80  # its standard error is too small by a factor of 2 here


def test_items_without_a_cluster_are_clusters_of_their_own() -> None:
    assert cluster_key(None, 1) != cluster_key(None, 2)
    assert cluster_key("1", 1) == cluster_key("1", 2)
    assert cluster_key(None, 1) != cluster_key("1", 1)


def test_a_cluster_name_may_hold_a_lone_surrogate() -> None:
    assert cluster_key("\ud800", 0) != cluster_key("\ud801", 0)


wins = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)).filter(any)


@given(st.lists(st.tuples(st.integers(0, 5), wins), max_size=12))
@settings(deadline=None, max_examples=40)
def test_sums_and_sizes_say_what_all_values_would(items: list[tuple[int, tuple[int, int, int]]]) -> None:
    """Wins, ties and losses of an item's pairs, added up or one by one: the very same numbers."""
    counts = np.array([pairs for _, pairs in items], dtype=np.int64).reshape(-1, 3)
    clusters = np.array([cluster for cluster, _ in items], dtype=np.uint64)
    sizes = counts.sum(axis=1)
    values = np.repeat(np.tile([1.0, 0.5, 0.0], len(items)), counts.ravel())
    assert clustered_mean(counts @ [1.0, 0.5, 0.0], sizes, clusters) == mean_of(values, np.repeat(clusters, sizes))


def test_a_million_different_values_have_the_interval_that_their_spread_calls_for() -> None:
    # drawn one by one, they would take minutes
    values = np.random.default_rng(5).normal(2, 3, size=1_000_000)
    mean = mean_of(values, np.arange(len(values), dtype=np.uint64))
    assert mean.bootstrap is not None
    assert mean.t is not None
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert (mean.bootstrap.high - mean.bootstrap.low) / 2 == pytest.approx(half, rel=0.1)
    assert (mean.bootstrap.high + mean.bootstrap.low) / 2 == pytest.approx(values.mean(), abs=half / 10)
    assert (mean.t.high - mean.t.low) / 2 == pytest.approx(half, rel=0.01)


def test_joining_clusters_keeps_what_sets_them_apart() -> None:
    # every cluster of its own size, and the larger ones with the larger values
    generator = np.random.default_rng(6)
    sizes = 1 + np.arange(3_000, dtype=np.int64)
    sums = sizes * (sizes / 3_000 + generator.normal(0, 0.5, size=len(sizes)))
    mean = clustered_mean(sums, sizes, np.arange(len(sizes), dtype=np.uint64))
    drawn = generator.integers(len(sizes), size=(2_000, len(sizes)))
    low, high = np.quantile(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), [0.025, 0.975])
    assert mean.bootstrap is not None
    assert (mean.bootstrap.low, mean.bootstrap.high) == pytest.approx((low, high), abs=(high - low) / 10)
