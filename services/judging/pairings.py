"""Which pairs of an item's candidates are compared, and in which order the slots are filled.

Guarantee: pure; the same item always gives the same pairs in the same order, in this process and in the next.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from services.vocabulary import Order, Orders

Pairs = Literal["all", "circular"] | tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Seating:
    """Which candidates, by index, sit in the slots of a call, the first slot first.

    `match` numbers the pair among the item's pairs; for a pointwise judge it is the candidate. A pointwise judge knows
    no order: all its seatings are `ab`.
    """

    match: int
    order: Order
    candidates: tuple[int, ...]


def pairings(pairs: Pairs, candidates: int) -> tuple[tuple[int, int], ...]:
    """The pairs of `candidates` indices that are compared.

    `all`: each with each, n (n - 1) / 2 pairs. `circular`: each with the next, the last with the first, n pairs. Two
    candidates are one pair in any case.
    """
    if candidates == 2:
        return ((0, 1),)
    if pairs == "all":
        return tuple(combinations(range(candidates), 2))
    if pairs == "circular":
        return tuple((index, (index + 1) % candidates) for index in range(candidates))
    return pairs


def connected(pairs: Sequence[tuple[int, int]], candidates: int) -> bool:
    """Whether the pairs tie all candidates together, so that each can be ranked against each."""
    reached, grown = {0}, True
    while grown:
        more = {index for pair in pairs if reached.intersection(pair) for index in pair} - reached
        reached |= more
        grown = bool(more)
    return reached == set(range(candidates))


def seatings(pairs: Sequence[tuple[int, int]], orders: Orders, item: str) -> tuple[tuple[Seating, ...], ...]:
    """For each pair its seatings, the given order first. `item` is the item's own id, which draws a random order."""
    return tuple(
        tuple(
            Seating(match, order, (second, first) if order.swapped else (first, second))
            for order in _orders(orders, item, match)
        )
        for match, (first, second) in enumerate(pairs)
    )


def _orders(orders: Orders, item: str, number: int) -> tuple[Order, ...]:
    match orders:
        case Orders.BOTH:
            return Order.AB, Order.BA
        case Orders.GIVEN:
            return (Order.AB,)
        case Orders.RANDOM:
            # A digest, because `hash` differs between processes.
            drawn = hashlib.sha256(f"{number} {item}".encode("utf-8", "surrogatepass")).digest()
            return (Order.BA,) if drawn[0] & 1 else (Order.AB,)
