"""The sequential test behind `early_stop: {"confidence": c}`: when enough answers say which candidate is preferred.

Guarantee: for a candidate that the judge's answers do not prefer in the long run by more than the tie margin, on the
average of both orders, the chance that hearing ever stops early in its favour is at most 1 - c, however many answers
come and whenever one looks. It is a chance for each side of each item, not a rate among the items that were stopped.

How: answers are bets. Each answer is a value x in [0, 1], 1 for a full preference and 1/2 for none. Let u be 1/2 plus
the tie margin. A gambler who puts the share s of a fortune on "above u" multiplies it by 1 + (s / u) (x - u). While the
mean of x is at most u that is no better than a fair game, so the fortune reaches 1 / (1 - c) with a chance of at most
1 - c (Ville 1939; Wald 1945 is the case of one bet and two-valued answers; bets on bounded means: Waudby-Smith & Ramdas
2024, "Estimating means of bounded random variables by betting"). The two orders may differ in their means m and m', as
a judge with position bias has it: of one answer each the expected factor is (1 + (s / u) (m - u)) times
(1 + (s / u) (m' - u)), at most 1 when (m + m') / 2 is at most u (the geometric mean never exceeds the arithmetic one).
So only as many answers of one order count as there are of the other.
"""

from collections.abc import Sequence
from math import prod
from statistics import fmean

from services.vocabulary import Winner

# Half of the fortune on each: the bold bet ends clear hearings soon, the cautious one survives a dissenting answer.
SHARES = (0.5, 0.9)


def evidence(values: Sequence[float], bar: float = 0.5) -> float:
    """The fortune after betting on a mean above `bar`: an e-value against "at most `bar`". `values` lie in [0, 1]."""
    return fmean(prod(1 + share / bar * (value - bar) for value in values) for share in SHARES)


def confident(orders: Sequence[Sequence[float]], confidence: float, tie_margin: float = 0.0) -> Winner | None:
    """The side that the test finds preferred by more than the margin, or None as long as it finds none.

    `orders` holds the values of each order's answers in the item's frame, in the order of their samples.
    """
    bar = 0.5 + tie_margin
    balanced = min(map(len, orders))
    values = [value for order in orders for value in order[:balanced]]
    if evidence(values, bar) >= 1 / (1 - confidence):
        return Winner.A
    if evidence([1 - value for value in values], bar) >= 1 / (1 - confidence):
        return Winner.B
    return None
