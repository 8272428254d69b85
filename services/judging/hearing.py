"""A hearing: all the calls that one judge makes for one item, as a state machine that others drive.

Guarantee: pure. What may be asked next follows from the options and from what was heard alone, so a hearing rebuilt
from stored traces goes on exactly where it stopped.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from services.judging.heard import Heard, ReadingRule, hear_labels, hear_probability, hear_text
from services.judging.opinion import Opinion, weigh
from services.judging.protocol import JudgeProtocol, Pair
from services.judging.reading import LabelSet, before_label, unfinished
from services.judging.runtime import Completion
from services.vocabulary import Decide, Flag, Mode, OnConflict, Order, Orders, Outcome


@dataclass(frozen=True, slots=True)
class HearingOptions:
    """How a judge hears an item. `decide` None: `soft` in direct mode, `vote` when reasoning.

    `samples` are calls for each order; direct mode draws nothing, so one is enough there. `tie_margin` is half the
    width of the band around 1/2 in which `p_a` is a tie. `forced_verdict` follows a call without a verdict up with a
    forced one. `decide` and `on_conflict` "soft" follow one with a verdict up, for its probability. `reading` "seed"
    takes the loose rule published with the model. Raises ValueError outside the ranges.
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
    """The place of a call in its hearing. `forced`: one token out of the labels, after what was written before.

    When reasoning, that is a follow-up: of a text without a verdict, to force one; of a text with one, for its
    probability.
    """

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
        self._decide = options.decide or (Decide.SOFT if options.mode is Mode.DIRECT else Decide.VOTE)
        may_conflict = len(self.orders) > 1
        self._soft = self._decide is Decide.SOFT or (may_conflict and options.on_conflict is OnConflict.SOFT)

    def pair(self, order: Order) -> Pair:
        """The two candidates as this order shows them."""
        given = self._pair
        return Pair(given.context, given.second, given.first) if order.swapped else given

    def open_calls(self) -> list[CallKey]:
        """The calls that may be under way now: all that are due and not yet heard, one order's before the other's."""
        return [key for key in self._due() if key not in self._heard]

    def written_before(self, key: CallKey) -> str:
        """What stands between the prompt and the label of a forced call, the verdict's opening at its end.

        The judge's own text: up to its verdict's label where it has one, else closed and opened for one.
        """
        assert key.forced
        form = self._protocol.verdict
        assert form is not None
        labels, followed = LabelSet(*form.labels), self._followed(key)
        if followed is not None and followed.winner:
            assert followed.reading.span is not None
            return before_label(followed.text, followed.reading.span, labels)
        text = "" if followed is None else followed.text
        return unfinished(text, labels, thinks=self._protocol.thinks) + form.opening

    def read(self, key: CallKey, completion: Completion) -> Heard:
        """What this call's answer says."""
        if not key.forced:
            return hear_text(self._protocol, completion, self._options.reading)
        assert self._protocol.verdict is not None
        followed = self._followed(key)
        hear = hear_probability if followed is not None and followed.winner else hear_labels
        return hear(self._protocol.verdict, completion)

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
            decide=self._decide,
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
                if not direct and self._is_followed_up(self._heard.get(first)):
                    yield CallKey(order, sample, forced=True)

    def _is_followed_up(self, heard: Heard | None) -> bool:
        if heard is None or self._protocol.verdict is None:
            return False
        if heard.outcome is Outcome.DECIDED:
            return self._soft and heard.reading.span is not None
        return self._options.forced_verdict and heard.outcome in (Outcome.TRUNCATED, Outcome.UNPARSEABLE)

    def _followed(self, key: CallKey) -> Heard | None:
        """The call that a forced one follows; None in direct mode, where it follows none."""
        return self._heard.get(CallKey(key.order, key.sample, forced=False))

    def _calls_of(self, order: Order, sample: int) -> Iterator[Heard]:
        for forced in (False, True):
            heard = self._heard.get(CallKey(order, sample, forced))
            if heard is not None:
                yield heard

    def _suspicion(self) -> frozenset[Flag]:
        suspected = self._protocol.injection_suspected(self._pair)
        return frozenset({Flag.INJECTION_SUSPECTED}) if suspected else frozenset()


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
