"""How many samples of a pair are asked, and when that is enough.

Guarantee: pure, and no call in vain: asked at once are as many samples as it takes at least to settle the pair, so none
of them could have been spared by waiting for another. What is asked follows from the answers alone, in a fixed order:
sample by sample, in each the given order first.
"""

from collections.abc import Sequence
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
        self._orders = tuple(orders)
        self._rule = rule
        self._early_stop = early_stop
        self.stopped: Stopped | None = None
        self.granted = 0
        self.advance([])

    def advance(self, answers: Sequence[Answer | None]) -> None:
        """Grant the next samples, given the `answers` to those granted so far, None where there was none."""
        rest = len(self.places) - self.granted
        if self._early_stop == "never":
            self.granted += rest
        elif rest and not (stopped := self._settled(answers)):
            self.granted += self._fewest(answers, rest)
        elif rest:
            self.stopped = stopped

    def _fewest(self, answers: Sequence[Answer | None], rest: int) -> int:
        """How many more answers could settle the pair at the earliest: each order all for one side, or all for none."""
        coming = self.places[self.granted :]
        for more in range(1, rest):
            for values in product((1.0, 0.0, 0.5), repeat=len(self._orders)):
                imagined = {
                    order: Answer(value, value, value) for order, value in zip(self._orders, values, strict=True)
                }
                if self._settled([*answers, *(imagined[order] for order, _ in coming[:more])]):
                    return more
        return rest

    def _settled(self, answers: Sequence[Answer | None]) -> Stopped | None:
        given: dict[Order, list[Answer]] = {order: [] for order in self._orders}
        left = dict.fromkeys(self._orders, 0)
        for (order, _), answer in zip(self.places, answers, strict=False):
            if answer is not None:
                given[order].append(answer)
        for order, _ in self.places[len(answers) :]:
            left[order] += 1
        if self._rule.certain(given, left):
            return "certain"
        if isinstance(self._early_stop, float) and all(given.values()):
            found = confident([[answer.value for answer in given[order]] for order in self._orders], self._early_stop)
            if found is not None and self._rule.decide(given).winner is found:
                return "confident"
        return None
