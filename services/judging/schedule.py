"""How many samples of a pair are asked, and when that is enough.

Guarantee: pure, and no call in vain: asked at once are as many samples as it takes at least to settle the pair, so no
vote among them could have been spared by waiting for another. What is asked follows from the answers alone, in a fixed
order: sample by sample, in each the given order first.

Stopping picks the moment when one side is ahead, so the share of answers for it is then too great on the average: a
stopped pair's winner is that of the full hearing, its `p` is not.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

from services.judging.stopping import confident
from services.judging.weighing import Answer, Rule
from services.vocabulary import Order

EarlyStop = Literal["never", "certain"] | float
"""When a pair needs no more samples: never before the last, when no answer could change the winner, or (a confidence
between 1/2 and 1) also when the sequential test of `stopping.py` has found its side."""

Stopped = Literal["certain", "confident"]


class Schedule:
    """The samples of one pair: `places` in the order of asking, of which the first `granted` may be asked."""

    def __init__(self, orders: Sequence[Order], samples: int, rule: Rule, early_stop: EarlyStop) -> None:
        self.places = tuple((order, sample) for sample in range(samples) for order in orders)
        self._plan = _Plan(tuple(orders), tuple(order for order, _ in self.places), rule, early_stop)
        self.stopped: Stopped | None = None
        self.granted = 0
        self.advance([])

    def advance(self, answers: Sequence[Answer | None]) -> None:
        """Grant the next samples, given the `answers` to those granted so far, None where there was none."""
        if self.granted == len(self.places):
            return
        if self._plan.early_stop == "never":
            self.granted = len(self.places)
            return
        self.stopped = self._plan.settled(tuple(answers))
        if self.stopped is None:
            self.granted += self._plan.fewest(tuple(answers))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a pair's answers mean for those to come. Items share it: few sequences of votes are different."""

    orders: tuple[Order, ...]
    coming: tuple[Order, ...]
    rule: Rule
    early_stop: EarlyStop

    @lru_cache(maxsize=4096)  # noqa: B019 - a job has few plans, and equal ones are one
    def fewest(self, answers: tuple[Answer | None, ...]) -> int:
        """How many more answers could settle the pair at the earliest: each order all for one side, or all even.

        More of the same never unsettle it, so the number is found by halving.
        """
        coming = self.coming[len(answers) :]
        imagined = [
            tuple(Answer(value, value, value) for value in (values[self.orders.index(order)] for order in coming))
            for values in product((1.0, 0.0, 0.5), repeat=len(self.orders))
        ]
        return 1 + bisect_left(
            range(1, len(coming)),
            True,
            key=lambda more: any(self.settled(answers + rest[:more]) is not None for rest in imagined),
        )

    def settled(self, answers: tuple[Answer | None, ...]) -> Stopped | None:
        """Whether these answers settle the pair, and how."""
        given: dict[Order, list[Answer]] = {order: [] for order in self.orders}
        for order, answer in zip(self.coming, answers, strict=False):
            if answer is not None:
                given[order].append(answer)
        left = Counter(self.coming[len(answers) :])
        if self.rule.certain(given, left):
            return "certain"
        if isinstance(self.early_stop, float) and all(given.values()):
            values = [[answer.value for answer in given[order]] for order in self.orders]
            found = confident(values, self.early_stop, self.rule.tie_margin)
            if found is not None and self.rule.decide(given).winner is found:
                return "confident"
        return None
