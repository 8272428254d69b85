"""Means, standard deviations and correlations of quantities whose values come in bit by bit.

Guarantee: keeps a few numbers a pair of quantities, however many values come. What is undefined is None.
"""

import numpy as np
from numpy.typing import NDArray

_NO_SPREAD = 1e-12  # a standard deviation below this share of the greatest value is rounding


class Moments:
    """The moments of k quantities that are always observed together, updated as by Chan, Golub & LeVeque (1983)."""

    def __init__(self, quantities: int) -> None:
        self.count = 0
        self._means = np.zeros(quantities)
        self._products = np.zeros((quantities, quantities))  # sums of products of differences from the means
        self._greatest = np.zeros(quantities)

    def add(self, values: NDArray[np.float64]) -> None:
        """Count n observations (n, k), at least one."""
        n = len(values)
        means = values.mean(axis=0)
        apart, total = means - self._means, self.count + n
        self._products += (values - means).T @ (values - means) + np.outer(apart, apart) * (self.count * n / total)
        self._means += apart * (n / total)
        self._greatest = np.maximum(self._greatest, np.abs(values).max(axis=0))
        self.count = total

    def mean(self, quantity: int) -> float | None:
        """The mean; None over nothing."""
        return float(self._means[quantity]) if self.count else None

    def std(self, quantity: int) -> float | None:
        """The standard deviation of the values as a population; None over fewer than two."""
        return self._spread(quantity) if self.count > 1 else None

    def correlation(self, first: int, second: int) -> float | None:
        """Pearson's r; None where a quantity does not vary."""
        spread = self._spread(first) * self._spread(second)
        if not spread:
            return None
        return float(np.clip(self._products[first, second] / (self.count * spread), -1, 1))

    def _spread(self, quantity: int) -> float:
        std = float(np.sqrt(self._products[quantity, quantity] / max(self.count, 1)))
        return std if std > _NO_SPREAD * self._greatest[quantity] else 0.0
