"""The ranking of n candidates out of the comparisons of their pairs: mean shares and Bradley-Terry strengths.

Guarantee: pure, and it has no favourites. Permuting the candidates permutes the answer, exchanging wins and losses
turns it round, and candidates that cannot be told apart share a rank. What was won without exception is said to be so
(`separated`), and what was never compared, directly or through others, is not ranked at all.

The model (Bradley & Terry 1952): i beats j with probability 1 / (1 + exp(s_j - s_i)). Its maximum-likelihood strengths
exist only where no group of candidates won every comparison with the rest (Ford 1957; Hunter 2004). Every compared pair
is therefore given (n - 1) / (2 m) wins each way, m being the number of compared pairs: half a win each way for a single
pair, 1 / n in a full round. That is Firth's correction (1993: half a win and half a loss for every free parameter),
shared out evenly, so it also takes away most of the small-sample bias, which a constant would not: with half a win for
every pair, the strengths of sixteen candidates compared twice each shrink to 0.6 of their size.

The strengths solve the likelihood's score equations, by scipy's least squares with the exact derivative. Minimising the
likelihood instead would stop at the seventh digit, where it is flat to rounding; evalica's iteration stops after 100
rounds, if not told otherwise, whether it has arrived or not, and brings pandas into every process that ranks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, ndtri

MOST_CANDIDATES = 16
MOST_WINS = 1024.0  # over one opponent, above what a job can ask; so far, what is found is right to six digits
_EQUAL = 1e-6  # strengths nearer than this are one: above the solver's error, far below any interval
_Z = ndtri(0.975)  # of a two-sided interval at 95 %


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Every array is (n,), in the order of the candidates.

    `scores`: the mean, over the opponents that a candidate was compared with, of its share of the wins.
    `strengths`: Bradley-Terry, natural logarithm, of mean 0. `low` and `high`: the ends of their 95 % intervals.
    `separated`: some candidates won every comparison with the rest, so the data say that they are stronger and not by
    how much; strengths and intervals owe their size to the correction then. `ranks` follow the strengths, 1 is the
    best; equal strengths share a rank and the next one counts them (1, 2, 2, 4).
    """

    scores: NDArray[np.float64]
    strengths: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    separated: bool
    ranks: NDArray[np.int64]


def rank(wins: NDArray[np.float64]) -> Ranking:
    """Rank n candidates, 2 to 16, by `wins` (n, n).

    `wins[i, j]` is what i won over j, summed over their comparisons: a tie gives each a half, a soft verdict p and
    1 - p. `wins[i, j] + wins[j, i]` is the number of their comparisons, 0 where the pair was not compared.

    Intervals are Wald's, from the pseudo-inverse of the Fisher information (Hunter 2004), and take every comparison as
    independent of the others: two orders or samples of one pair that repeat each other make them too narrow.

    Raises ValueError for anything else than such a matrix of at most `MOST_WINS`, and for comparisons that leave the
    candidates in groups without any comparison between them, which have no common scale.
    """
    _check(wins)
    met = wins + wins.T
    compared = met > 0
    groups = connected_components(compared, directed=False, return_labels=False)
    if groups > 1:
        raise ValueError(f"the candidates fall into {groups} groups that were never compared with each other")
    corrected = wins + compared * ((len(wins) - 1) / np.count_nonzero(compared))
    strengths = _strengths(corrected)
    margin = _Z * _errors(corrected, strengths)
    shares = np.divide(wins, met, out=np.zeros_like(met), where=compared)
    return Ranking(
        scores=shares.sum(axis=1) / compared.sum(axis=1),
        strengths=strengths,
        low=strengths - margin,
        high=strengths + margin,
        separated=connected_components(wins > 0, connection="strong", return_labels=False) > 1,
        ranks=_ranks(strengths),
    )


def _check(wins: NDArray[np.float64]) -> None:
    if wins.ndim != 2 or wins.shape[0] != wins.shape[1] or not 2 <= len(wins) <= MOST_CANDIDATES:
        raise ValueError(f"wins of 2 to {MOST_CANDIDATES} candidates are a square matrix, not one of {wins.shape}")
    if not ((wins >= 0) & (wins <= MOST_WINS)).all():
        raise ValueError(f"wins over one opponent are 0 to {MOST_WINS:.0f}")
    if np.diag(wins).any():
        raise ValueError("no candidate is compared with itself")


def _strengths(wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """The strengths s under which each candidate's expected wins are its wins, and whose sum is 0."""
    met, won = wins + wins.T, wins.sum(axis=1)
    fit = least_squares(
        lambda s: (met * _chances(s)).sum(axis=1) - won + s.sum(),  # what is won is also lost, so s sums to 0 as well
        np.zeros(len(wins)),
        jac=lambda s: _information(wins, s),
        method="dogbox",
        xtol=1e-10,
        ftol=None,
        gtol=None,
    )
    assert fit.success, fit.message
    return np.asarray(fit.x)


def _errors(wins: NDArray[np.float64], s: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard errors (n,) of the strengths s, their sum being fixed."""
    covariance = np.linalg.inv(_information(wins, s)) - 1 / len(s) ** 2
    return np.asarray(np.sqrt(np.diag(covariance)))


def _information(wins: NDArray[np.float64], s: NDArray[np.float64]) -> NDArray[np.float64]:
    """The Fisher information (n, n) of as many comparisons at the strengths s, plus 1 everywhere.

    It says nothing on the sum of the strengths. The 1 makes up for that direction and leaves the others alone: the
    inverse is the pseudo-inverse plus 1 / n^2 everywhere.
    """
    chances = _chances(s)
    variance = (wins + wins.T) * chances * chances.T
    return np.diag(variance.sum(axis=1)) - variance + 1


def _chances(s: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probability (n, n) that the row's candidate beats the column's."""
    return np.asarray(expit(s[:, np.newaxis] - s))


def _ranks(strengths: NDArray[np.float64]) -> NDArray[np.int64]:
    """Competition ranks. A strength within rounding of the next better one is equal to it."""
    order = np.argsort(-strengths)
    steps = np.flatnonzero(np.diff(strengths[order], prepend=np.inf) < -_EQUAL)
    ranks = np.empty(len(strengths), dtype=np.int64)
    ranks[order] = np.repeat(steps + 1, np.diff(steps, append=len(strengths)))
    return ranks
