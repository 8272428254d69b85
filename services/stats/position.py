"""What a judge's answers owe to the order in which it was shown the candidates.

Guarantee: pure. The frame of every table here is the item's: an answer is A, tie or B whichever stood first.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.stats.agreement import kappa
from services.stats.intervals import Proportion, proportion


@dataclass(frozen=True, slots=True)
class Position:
    """A judge without position bias takes the first slot about half of the time, and its orders agree.

    `first_slot`: hard answers that named the candidate shown first, of all that named one. `consistent`: items whose
    two orders came to the same answer, of all items heard in both; the flip rate is the rest. `order_kappa`: Cohen's
    kappa between the two orders, None where undefined.
    """

    first_slot: Proportion
    consistent: Proportion
    order_kappa: float | None


def position(first_slot: int, sided: int, orders: NDArray[np.int64]) -> Position:
    """Position bias out of counts.

    `first_slot` of `sided` hard answers named the first slot. `orders` (k, k) counts items by their answer in the given
    order (rows) and in the swapped one (columns).
    """
    return Position(
        first_slot=proportion(first_slot, sided),
        consistent=proportion(int(np.trace(orders)), int(orders.sum())),
        order_kappa=kappa(orders),
    )
