"""The sequential test behind `early_stop: {"confidence": c}`: when enough answers say which candidate is preferred.

Guarantee: for an item whose candidate is not preferred in the long run, the chance that hearing ever stops early in its
favour is at most 1 - c, however many answers come and whenever one looks.

How: answers are bets. Each answer is a value x in [0, 1], 1 for a full preference and 1/2 for none. A gambler who puts
the share b of a fortune on "above 1/2" multiplies it by 1 + b (x - 1/2). While the mean of x is at most 1/2 that is no
better than a fair game, so the fortune reaches 1 / (1 - c) with a chance of at most 1 - c (Ville 1939; Wald 1945 is the
case of one bet and two-valued answers; bets on bounded means: Waudby-Smith & Ramdas 2024, "Estimating means of bounded
random variables by betting"). The two orders may differ in their means, as a judge with position bias has it: of one
answer each the expected factor is (1 + b (m - 1/2)) (1 + b (m' - 1/2)), at most 1 when m + m' is at most 1 (the
geometric mean never exceeds the arithmetic one). So only as many answers of one order count as there are of the other.
"""

from collections.abc import Sequence
from math import prod
from statistics import fmean

from services.vocabulary import Winner

# Half of the fortune on each: the bold bet ends clear hearings soon, the cautious one survives a dissenting answer.
BETS = (1.0, 1.8)


def evidence(values: Sequence[float]) -> float:
    """The fortune after betting on a mean above 1/2: an e-value against "at most 1/2". `values` lie in [0, 1]."""
    return fmean(prod(1 + bet * (value - 0.5) for value in values) for bet in BETS)


def confident(orders: Sequence[Sequence[float]], confidence: float) -> Winner | None:
    """The side that the test finds preferred, or None as long as it finds none.

    `orders` holds the values of each order's answers in the item's frame, in the order of their samples.
    """
    balanced = min(map(len, orders))
    values = [value for order in orders for value in order[:balanced]]
    if evidence(values) >= 1 / (1 - confidence):
        return Winner.A
    if evidence([1 - value for value in values]) >= 1 / (1 - confidence):
        return Winner.B
    return None
