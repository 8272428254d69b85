"""A hearing: all the calls that one judge makes for one item, as a state machine that others drive.

Guarantee: pure. What may be asked next follows from the options and from what was heard alone, so a hearing rebuilt
from stored traces goes on exactly where it stopped.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from services.judging.heard import Heard, ReadingRule, hear_labels, hear_text
from services.judging.opinion import Opinion, weigh
from services.judging.protocol import JudgeProtocol, Pair
from services.judging.reading import LabelSet, unfinished
from services.judging.runtime import Completion
from services.vocabulary import Decide, Flag, Mode, OnConflict, Order, Orders, Outcome


@dataclass(frozen=True, slots=True)
class HearingOptions:
    """How a judge hears an item. `decide` None: `soft` in direct mode, `vote` when reasoning.

    `samples` are calls for each order; direct mode draws nothing, so one is enough there. `tie_margin` is half the
    width of the band around 1/2 in which `p_a` is a tie. `forced_verdict` follows a call without a verdict up with a
    forced one. `reading` "seed" takes the loose rule published with the model. Raises ValueError outside the ranges.
    """

    orders: Orders = Orders.BOTH
    samples: int = 1
    mode: Mode = Mode.REASON
    decide: Decide | None = None
    forced_verdict: bool = True
    on_conflict: OnConflict = OnConflict.TIE
    tie_margin: float = 0.0
    reading: ReadingRule = "strict"

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError("samples is at least 1")
        if not 0 <= self.tie_margin <= 0.5:
            raise ValueError("tie_margin is between 0 and 0.5")


@dataclass(frozen=True, slots=True)
class CallKey:
    """The place of a call in its hearing. `forced`: one token out of the labels, after what was written before."""

    order: Order
    sample: int
    forced: bool

    @property
    def number(self) -> int:
        """Unique and stable within item and judge; a follow-up comes right after the call that it follows."""
        return self.sample * 4 + self.order.swapped * 2 + self.forced

    @classmethod
    def from_number(cls, number: int) -> "CallKey":
        """The key that has this number."""
        return cls(Order.BA if number & 2 else Order.AB, number // 4, bool(number & 1))


class Hearing:
    """One judge, one item.

    Ask the calls of `open_calls` in any order, `read` and `record` their answers, until it has `ended`. Stored traces
    are recorded by ascending call number.
    """

    def __init__(self, judge: str, item: str, pair: Pair, protocol: JudgeProtocol, options: HearingOptions) -> None:
        """`pair` stands as the item gives it; `item` is the item's own id, which draws the order when it is random.

        Raises ValueError for direct mode with a protocol whose verdict cannot be forced.
        """
        if options.mode is Mode.DIRECT and protocol.verdict is None:
            raise ValueError(f"the protocol {protocol.name} has no direct mode: its verdict cannot be forced")
        self._judge = judge
        self._pair = pair
        self._protocol = protocol
        self._options = options
        self._heard: dict[CallKey, Heard] = {}
        self.orders = _orders(options.orders, item)

    def pair(self, order: Order) -> Pair:
        """The two candidates as this order shows them."""
        given = self._pair
        return Pair(given.context, given.second, given.first) if order.swapped else given

    def open_calls(self) -> list[CallKey]:
        """The calls that may be under way now: all that are due and not yet heard, one order's before the other's."""
        return [key for key in self._due() if key not in self._heard]

    def written_before(self, key: CallKey) -> str:
        """What stands between the prompt and the opening of a forced verdict: the judge's own text, closed."""
        assert key.forced
        assert self._protocol.verdict is not None
        text = "" if self._options.mode is Mode.DIRECT else self._heard[_followed(key)].text
        return unfinished(text, LabelSet(*self._protocol.verdict.labels), thinks=self._protocol.thinks)

    def read(self, key: CallKey, completion: Completion) -> Heard:
        """What this call's answer says."""
        if key.forced:
            assert self._protocol.verdict is not None
            return hear_labels(self._protocol.verdict, completion)
        return hear_text(self._protocol, completion, self._options.reading)

    def record(self, key: CallKey, heard: Heard) -> None:
        """Take down one answered call. Raises ValueError unless it is open."""
        if key not in self.open_calls():
            raise ValueError(f"{key} is not open in this hearing")
        self._heard[key] = heard

    @property
    def ended(self) -> bool:
        """True when nothing is left to ask."""
        return not self.open_calls()

    def opinion(self) -> Opinion:
        """What the hearing came to. Raises ValueError before its end."""
        if not self.ended:
            raise ValueError("the hearing has not ended")
        options = self._options
        return weigh(
            self._judge,
            {
                order: [list(self._calls_of(order, sample)) for sample in range(options.samples)]
                for order in self.orders
            },
            decide=options.decide or (Decide.SOFT if options.mode is Mode.DIRECT else Decide.VOTE),
            on_conflict=options.on_conflict,
            tie_margin=options.tie_margin,
            flags=self._suspicion(),
        )

    def _due(self) -> Iterator[CallKey]:
        direct = self._options.mode is Mode.DIRECT
        for order in self.orders:
            for sample in range(self._options.samples):
                first = CallKey(order, sample, forced=direct)
                yield first
                if not direct and self._needs_forcing(self._heard.get(first)):
                    yield CallKey(order, sample, forced=True)

    def _needs_forcing(self, heard: Heard | None) -> bool:
        if heard is None or not self._options.forced_verdict or self._protocol.verdict is None:
            return False
        return heard.outcome in (Outcome.TRUNCATED, Outcome.UNPARSEABLE)

    def _calls_of(self, order: Order, sample: int) -> Iterator[Heard]:
        for forced in (False, True):
            heard = self._heard.get(CallKey(order, sample, forced))
            if heard is not None:
                yield heard

    def _suspicion(self) -> frozenset[Flag]:
        suspected = self._protocol.injection_suspected(self._pair)
        return frozenset({Flag.INJECTION_SUSPECTED}) if suspected else frozenset()


def _followed(key: CallKey) -> CallKey:
    return CallKey(key.order, key.sample, forced=False)


def _orders(orders: Orders, item: str) -> tuple[Order, ...]:
    match orders:
        case Orders.BOTH:
            return Order.AB, Order.BA
        case Orders.GIVEN:
            return (Order.AB,)
        case Orders.RANDOM:
            # A digest, because `hash` differs between processes.
            digest = hashlib.sha256(item.encode("utf-8", "surrogatepass")).digest()
            return (Order.BA,) if digest[0] & 1 else (Order.AB,)
