"""A ranking has no favourites, agrees with statsmodels' own fit, and its intervals cover."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_linear_model import GLM

from services.stats.ranking import MOST_WINS, Ranking, rank

Wins = NDArray[np.float64]

SHARES = st.one_of(
    st.sampled_from([(1.0, 0.0), (0.0, 2.0), (1.0, 1.0), (0.5, 0.5), (MOST_WINS, 0.0)]),
    st.floats(0, 1).map(lambda p: (p, 1 - p)),
    st.tuples(st.integers(0, 9), st.integers(1, 9)),
    st.tuples(st.floats(0, MOST_WINS), st.floats(1, MOST_WINS)),
)


@st.composite
def tournaments(draw: st.DrawFn) -> Wins:
    """Wins of 2 to 16 candidates who were all compared, directly or through others."""
    n = draw(st.integers(2, 16))
    line = {(draw(st.integers(0, j - 1)), j) for j in range(1, n)}  # each with one that came before
    more = draw(st.sets(st.sampled_from(list(combinations(range(n), 2)))))
    wins = np.zeros((n, n))
    for i, j in sorted(line | more):
        wins[i, j], wins[j, i] = draw(SHARES)
    return wins


def played(strengths: NDArray[np.float64], times: int, seed: int, pairs: list[tuple[int, int]] | None = None) -> Wins:
    """Every pair (or `pairs`) compared so many times by a judge who follows the model."""
    generator = np.random.default_rng(seed)
    wins = np.zeros((len(strengths), len(strengths)))
    for i, j in pairs or combinations(range(len(strengths)), 2):
        wins[i, j] = generator.binomial(times, expit(strengths[i] - strengths[j]))
        wins[j, i] = times - wins[i, j]
    return wins


def sweep(n: int) -> Wins:
    """Every candidate beats all that come after it, twice."""
    return np.triu(np.full((n, n), 2.0), k=1)


def test_two_candidates_have_the_corrected_log_odds_and_their_error() -> None:
    # Haldane's and Anscombe's estimate: half a win each way; the strengths are half the difference each
    found = rank(np.array([[0.0, 7.0], [3.0, 0.0]]))
    difference = np.log(7.5 / 3.5)
    error = np.sqrt(1 / 7.5 + 1 / 3.5)
    assert found.strengths == pytest.approx([difference / 2, -difference / 2])
    assert found.low == pytest.approx((np.array([difference, -difference]) - 1.959964 * error) / 2)
    assert found.high == pytest.approx((np.array([difference, -difference]) + 1.959964 * error) / 2)
    assert found.scores == pytest.approx([0.7, 0.3])
    assert found.ranks.tolist() == [1, 2]
    assert not found.separated


@pytest.mark.parametrize("seed", range(5))
def test_strengths_and_errors_are_those_of_a_generalised_linear_model(seed: int) -> None:
    generator = np.random.default_rng(seed)
    n = int(generator.integers(3, 9))
    ring = [(i, (i + 1) % n) for i in range(n)]
    wins = played(generator.normal(0, 1.5, n), 6, seed, ring + [(0, 2)] * (n > 3))
    pairs = [(i, j) for i, j in combinations(range(n), 2) if wins[i, j] + wins[j, i]]
    correction = (n - 1) / (2 * len(pairs))
    counts = [(wins[i, j] + correction, wins[j, i] + correction) for i, j in pairs]
    # the last strength is minus the sum of the others
    basis = np.vstack([np.eye(n - 1), -np.ones(n - 1)])
    design = np.array([basis[i] - basis[j] for i, j in pairs])
    fit = GLM(np.array(counts), design, family=Binomial()).fit(tol=1e-12, maxiter=200)
    found = rank(wins)
    assert found.strengths == pytest.approx(basis @ fit.params, abs=1e-6)
    errors = np.sqrt(np.diag(basis @ fit.cov_params() @ basis.T))
    assert found.high - found.low == pytest.approx(2 * 1.959964 * errors, rel=1e-5)


@settings(deadline=None)
@given(wins=tournaments(), data=st.data())
def test_permuting_the_candidates_permutes_everything(wins: Wins, data: st.DataObject) -> None:
    seen = rank(wins)
    order = data.draw(st.permutations(range(len(wins))))
    found = rank(wins[np.ix_(order, order)])
    assert found.scores == pytest.approx(seen.scores[order], abs=1e-12)
    margins = (seen.high - seen.low)[order] / 2
    assert same(found.strengths, seen.strengths[order], margins)
    assert same(found.low, seen.low[order], margins)
    assert same(found.high, seen.high[order], margins)
    assert found.separated == seen.separated
    if clear(seen):
        assert found.ranks.tolist() == seen.ranks[order].tolist()


@settings(deadline=None)
@given(wins=tournaments())
def test_exchanging_wins_and_losses_turns_the_ranking_round(wins: Wins) -> None:
    seen, found = rank(wins), rank(wins.T)
    assert found.scores == pytest.approx(1 - seen.scores, abs=1e-12)
    margins = (seen.high - seen.low) / 2
    assert same(found.strengths, -seen.strengths, margins)
    assert same(found.low, -seen.high, margins)
    assert same(found.high, -seen.low, margins)
    assert found.separated == seen.separated
    if clear(seen):
        assert found.ranks.tolist() == stats.rankdata(-seen.ranks, method="min").tolist()


def same(found: NDArray[np.float64], seen: NDArray[np.float64], margins: NDArray[np.float64]) -> bool:
    """Agree to six digits of the margins, which are hundreds wide where counts are as unlike as they may be."""
    return bool((np.abs(found - seen) < 1e-6 * np.maximum(1, margins)).all())


def clear(found: Ranking) -> bool:
    """No two strengths stand just where rounding would decide whether they are equal."""
    gaps = np.diff(np.sort(found.strengths))
    return not ((gaps > 1e-7) & (gaps < 1e-5)).any()


@settings(deadline=None)
@given(wins=tournaments())
def test_strengths_have_mean_zero_and_lie_within_their_intervals(wins: Wins) -> None:
    found = rank(wins)
    assert found.strengths.mean() == pytest.approx(0, abs=1e-9)
    assert (found.low < found.strengths).all()
    assert (found.strengths < found.high).all()
    assert np.isfinite(found.high).all()
    assert (found.ranks == stats.rankdata(-found.strengths.round(5), method="min")).all() or not clear(found)


@settings(deadline=None)
@given(n=st.integers(2, 8), data=st.data())
def test_in_a_full_round_the_strengths_order_the_candidates_as_their_mean_scores_do(
    n: int, data: st.DataObject
) -> None:
    wins = np.zeros((n, n))
    for i, j in combinations(range(n), 2):
        wins[i, j] = data.draw(st.sampled_from(np.arange(0, 4.5, 0.5)))
        wins[j, i] = 4 - wins[i, j]
    found = rank(wins)
    assert found.ranks.tolist() == stats.rankdata(-found.scores.round(9), method="min").tolist()


@pytest.mark.parametrize("n", [2, 3, 4, 9, 16])
def test_a_clean_sweep_has_a_strict_order_and_is_flagged(n: int) -> None:
    found = rank(sweep(n))
    assert found.ranks.tolist() == list(range(1, n + 1))
    assert found.separated
    assert found.scores == pytest.approx(np.linspace(1, 0, n))


def test_one_lost_comparison_that_closes_the_circle_ends_the_separation() -> None:
    wins = sweep(4)
    wins[3, 0] = 0.5
    assert not rank(wins).separated


def test_one_candidate_that_won_everything_separates_the_rest() -> None:
    wins = np.ones((4, 4)) - np.eye(4)
    wins[1:, 0] = 0
    found = rank(wins)
    assert found.separated
    assert found.ranks.tolist() == [1, 2, 2, 2]


def test_equal_candidates_share_a_rank_and_the_next_counts_them() -> None:
    wins = np.array([[0.0, 2, 2, 2], [0, 0, 1, 2], [0, 1, 0, 2], [0, 0, 0, 0]])
    assert rank(wins).ranks.tolist() == [1, 2, 2, 4]
    assert rank(np.ones((5, 5)) - np.eye(5)).ranks.tolist() == [1] * 5


def test_a_score_is_the_mean_over_opponents_however_often_each_was_met() -> None:
    wins = np.array([[0.0, 9, 0], [1, 0, 1], [2, 1, 0]])
    assert rank(wins).scores == pytest.approx([(0.9 + 0.0) / 2, (0.1 + 0.5) / 2, (1.0 + 0.5) / 2])


def test_a_score_leaves_out_whoever_was_not_met() -> None:
    ring = np.array([[0.0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    assert rank(ring).scores == pytest.approx([1, 0.5, 0.5, 0])


def test_known_strengths_are_recovered() -> None:
    truth = np.linspace(-2, 2, 10)
    found = rank(played(truth, 1000, seed=3))
    assert found.strengths == pytest.approx(truth, abs=0.09)
    assert found.ranks.tolist() == list(range(10, 0, -1))


@pytest.mark.parametrize(
    ("n", "times", "neighbours_only"), [(4, 4, False), (16, 2, False), (8, 12, True)], ids=["few", "many", "ring"]
)
def test_intervals_cover_and_small_samples_do_not_bend_the_strengths(n: int, times: int, neighbours_only: bool) -> None:
    generator = np.random.default_rng(11)
    pairs = [(i, (i + 1) % n) for i in range(n)] if neighbours_only else None
    covered, along, length = 0.0, 0.0, 0.0
    simulations = 150
    for seed in range(simulations):
        truth = generator.normal(size=n)
        truth -= truth.mean()
        found = rank(played(truth, times, seed, pairs))
        covered += np.mean((found.low <= truth) & (truth <= found.high)) / simulations
        along, length = along + truth @ found.strengths, length + truth @ truth
    assert 0.93 <= covered <= 0.98
    assert 0.85 <= along / length <= 1.1  # the slope of the estimate on the truth


def test_counts_as_unlike_as_they_may_be_still_solve_the_equations() -> None:
    chain = np.diag(np.full(15, MOST_WINS), k=1)
    chain[6, 5] = 1
    found = rank(chain)
    # neighbours in a chain are independent pairs, each with half a win more both ways
    gaps = np.log((np.diag(chain, 1) + 0.5) / (np.diag(chain, -1) + 0.5))
    assert -np.diff(found.strengths) == pytest.approx(gaps, abs=1e-7)


def test_groups_that_never_met_have_no_ranking() -> None:
    apart = np.zeros((4, 4))
    apart[0, 1] = apart[2, 3] = 1
    with pytest.raises(ValueError, match="2 groups"):
        rank(apart)
    with pytest.raises(ValueError, match="3 groups"):
        rank(np.zeros((3, 3)))


@pytest.mark.parametrize(
    ("wins", "complaint"),
    [
        (np.zeros((1, 1)), "square"),
        (np.zeros((17, 17)), "square"),
        (np.zeros((2, 3)), "square"),
        (np.zeros(4), "square"),
        (np.array([[0, -1.0], [1, 0]]), "0 to 1024"),
        (np.array([[0, np.nan], [1, 0]]), "0 to 1024"),
        (np.array([[0, np.inf], [1, 0]]), "0 to 1024"),
        (np.array([[0, 2 * MOST_WINS], [1, 0]]), "0 to 1024"),
        (np.array([[1.0, 1], [1, 0]]), "itself"),
    ],
)
def test_what_is_no_matrix_of_wins_is_refused(wins: Wins, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        rank(wins)
