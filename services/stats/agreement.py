"""How far two raters agree beyond chance: raw agreement, base rate, Cohen's kappa.

Guarantee: pure. Works on a table of counts, so a million items take nine numbers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.inter_rater import cohens_kappa

from services.stats.intervals import Proportion, proportion


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a rater says what the reference says.

    `base` is what one would reach by always giving the reference's most frequent answer: raw agreement means little
    without it. `kappa` (Cohen 1960) is None where it is undefined: nothing rated, or both give one and the same answer
    throughout.
    """

    raw: Proportion
    base: Proportion
    kappa: float | None


def agreement(table: NDArray[np.int64]) -> Agreement:
    """Agreement out of a square table of counts (k, k): rows are the rater's answers, columns the reference's."""
    n = int(table.sum())
    return Agreement(
        raw=proportion(int(np.trace(table)), n),
        base=proportion(int(table.sum(axis=0).max()), n),
        kappa=kappa(table),
    )


def kappa(table: NDArray[np.int64]) -> float | None:
    """Cohen's kappa of a square table of counts (k, k); None where it is undefined."""
    one_answer_only = np.count_nonzero(table.sum(axis=0) + table.sum(axis=1)) < 2
    return None if one_answer_only else float(cohens_kappa(table, return_results=False))
