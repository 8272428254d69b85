"""What a test tells the scripted runtime to do: rules for single prompts, faults for the whole server.

Guarantee: rules are tried in the order they were given, and each is spent after `times` uses; without rules and faults
nothing here costs a call anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum


class Fault(StrEnum):
    """A way in which a runtime breaks."""

    HANG = "hang"  # no call is answered, nor is /health; /ready still says 200, as with a dead scheduler
    HANG_HEALTHY = "hang_healthy"  # no call is answered while /health says 200
    GARBAGE = "garbage"  # 200 with a body that is not JSON
    HALF_BODY = "half_body"  # the connection closes in the middle of a good body
    UNAVAILABLE = "unavailable"  # 503
    STREAM_ERROR = "stream_error"  # 200 with an event stream that holds an error
    SLOW_PREFILL = "slow_prefill"  # `seconds` more before the first token
    DIE = "die"  # the process ends, the connection closes unanswered
    REFUSE = "refuse"  # nothing listens for `seconds`


class Unscriptable(ValueError):
    """The order is not one that this module knows."""


@dataclass(slots=True)
class Order:
    """What to do with a call: any of content, delay and fault. `times` None: for ever.

    `score` is what a classifier says, before its head's bias. `p_first` is the first label's probability. With `drawn`
    it also draws the verdict of a free answer, anew at each use of the order: the k-th use gets the k-th draw of a
    sequence that depends on `match`, `p_first` and the server's seed alone.
    """

    match: str = ""
    text: str | None = None
    score: float | None = None
    finish_reason: str = "stop"
    p_first: float | None = None
    drawn: bool = False
    latency_s: float | None = None
    fault: Fault | None = None
    seconds: float = 1.0
    times: int | None = None
    used: int = field(default=0, init=False)

    @property
    def draw(self) -> bytes:
        """What the draw of the present use depends on, besides the seed."""
        return repr((self.match, self.p_first, self.used)).encode()

    @classmethod
    def read(cls, given: object) -> "Order":
        """An order as JSON gives it. Raises Unscriptable."""
        if not isinstance(given, Mapping):
            raise Unscriptable("an order is an object")
        if unknown := sorted(given.keys() - {known.name for known in fields(cls) if known.init}):
            raise Unscriptable(f"unknown fields: {', '.join(unknown)}")
        try:
            order = cls(**given)
            order.fault = Fault(order.fault) if order.fault is not None else None
        except ValueError as error:
            raise Unscriptable(str(error)) from error
        if order.finish_reason not in ("stop", "length", "abort"):
            raise Unscriptable(f"unknown finish reason {order.finish_reason!r}")
        if order.p_first is not None and not 0 < order.p_first < 1:
            raise Unscriptable("p_first lies between 0 and 1")
        if order.drawn and order.p_first is None:
            raise Unscriptable("a verdict is drawn with p_first")
        return order


class Script:
    """The rules and the fault in force."""

    def __init__(self) -> None:
        self.rules: list[Order] = []
        self.fault: Order | None = None

    def rule(self, prompt: str) -> Order | None:
        """The first unspent rule whose `match` stands in the prompt, used once."""
        for at, rule in enumerate(self.rules):
            if rule.match in prompt:
                rule.used += 1
                if rule.times is not None:
                    rule.times -= 1
                    if rule.times <= 0:
                        del self.rules[at]
                return rule
        return None

    def struck(self) -> Order | None:
        """The fault that strikes this call, used once."""
        fault = self.fault
        if fault is not None and fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self.fault = None
        return fault
