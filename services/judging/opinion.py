"""What a hearing comes to: the opinion of one judge on one item, and the verdict of a panel.

Guarantee: everything stands in the item's frame (`A` is the item's first candidate, whatever slot it was shown in), and
exchanging the two candidates exchanges the answer. Nothing stands for an answer that was not given: an order without a
valid call leaves no number behind, only an error.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import Any

from services.judging.heard import Heard
from services.vocabulary import Decide, Flag, ItemError, ItemStatus, OnConflict, Order, Outcome, Winner

VOTE = {Winner.A: 1.0, Winner.TIE: 0.5, Winner.B: 0.0}
ROUNDING = 1e-12
CONFLICT = "orders_conflict"

# Several things can have gone wrong in one order. The first of these that occurred names the error: what another try
# may cure comes before what only another prompt, a longer answer or another judge would. A follow-up that did not
# fit is not among them: the call that it followed did fit, and its own outcome says what was missing.
PRECEDENCE = (
    (ItemError.RUNTIME_ERROR, {Outcome.FAILED, Outcome.ABORTED}),
    (ItemError.CONTEXT_OVERFLOW, {Outcome.CONTEXT_OVERFLOW}),
    (ItemError.TRUNCATED, {Outcome.TRUNCATED}),
    (ItemError.UNPARSEABLE, {Outcome.UNPARSEABLE}),
)

MESSAGES = {
    ItemError.RUNTIME_ERROR: "the runtime refused or aborted the calls of one order",
    ItemError.CONTEXT_OVERFLOW: "the comparison does not fit the judge's context",
    ItemError.TRUNCATED: "the judge reached its token limit before a verdict in one order",
    ItemError.UNPARSEABLE: "the judge gave no readable verdict in one order",
    ItemError.POISONED: "the item stopped its worker or runtime again and again",
}


@dataclass(frozen=True, slots=True)
class Opinion:
    """One judge's answer on one item.

    `winner` is None for an abstention (`on_conflict`) and, with `error`, when an order has no valid call; only the
    latter leaves `p_a` and `consistent` empty. `consistent`: every order prefers the same side by its votes; None with
    a single order. `votes` counts the valid answers by order, `first_slot` those for the first slot, `vote_entropy` is
    their entropy in bits over A, B and tie. `valid` and `invalid` count samples with and without an answer, `forced`
    the valid ones that were forced, `without_p` the valid ones without a probability: where `p_a` is soft, these count
    as their votes. `calls` are those that were sent; tokens and seconds are sums over them of what the runtime reported
    (of a call heard in an earlier claim of its chunk, the seconds that the worker waited).
    """

    judge: str
    winner: Winner | None
    p_a: float | None
    consistent: bool | None
    error: ItemError | None
    votes: Mapping[Order, Mapping[Winner, int]]
    first_slot: int
    vote_entropy: float | None
    valid: int
    invalid: int
    forced: int
    without_p: int
    flags: frozenset[Flag]
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    latency_s: float

    @property
    def reason(self) -> str | None:
        """Why there is no winner: `orders_conflict` for an abstention, else the error's code."""
        if self.winner is not None:
            return None
        return self.error.value if self.error else CONFLICT

    def as_json(self) -> dict[str, Any]:
        """The opinion as it stands in results."""
        body = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "error"}
        votes = {
            order.value: {side.value: count for side, count in sides.items()} for order, sides in self.votes.items()
        }
        return body | {"reason": self.reason, "votes": votes, "flags": sorted(flag.value for flag in self.flags)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Opinion":
        """The opinion that `as_json` wrote."""
        rest = {name: value for name, value in body.items() if name != "reason"}
        reason = body["reason"]
        return cls(
            **rest
            | {
                "winner": Winner(body["winner"]) if body["winner"] else None,
                "error": ItemError(reason) if reason and reason != CONFLICT else None,
                "votes": {
                    Order(order): {Winner(side): count for side, count in sides.items()}
                    for order, sides in body["votes"].items()
                },
                "flags": frozenset(map(Flag, body["flags"])),
            }
        )


def weigh(
    judge: str,
    heard: Mapping[Order, Sequence[Sequence[Heard]]],
    *,
    decide: Decide,
    on_conflict: OnConflict = OnConflict.TIE,
    tie_margin: float = 0.0,
    flags: frozenset[Flag] = frozenset(),
) -> Opinion:
    """Weigh what was heard: for every order and sample the calls made, a follow-up after the call that it follows.

    A follow-up of a call without an answer stands in its place; one of a call with an answer lends it its probability
    and nothing else.

    `p_a` is the mean over orders of the mean over samples: an order with more valid calls does not weigh more. `vote`
    counts an answer as 1, 1/2 or 0; `soft` as its probability, and as a vote where it has none.
    Orders conflict when one prefers A and another B by their votes: `on_conflict` says what `vote` makes of that.
    """
    standing = {order: [_standing(calls) for calls in samples] for order, samples in heard.items()}
    valid = {order: [call for call in calls if call.winner] for order, calls in standing.items()}
    answers = [call for calls in valid.values() for call in calls]
    sent = [call for samples in heard.values() for calls in samples for call in calls if call.sent]
    votes = {order: Counter(_in_item_frame(call, order) for call in calls) for order, calls in valid.items()}
    silent = [cause for order in heard if not valid[order] for calls in heard[order] for cause in _causes(calls)]
    winner, p_a, consistent = (None, None, None) if silent else _decide(valid, decide, on_conflict, tie_margin)
    return Opinion(
        judge=judge,
        winner=winner,
        p_a=p_a,
        consistent=consistent,
        error=_error(silent) if silent else None,
        votes={order: {side: counts[side] for side in Winner} for order, counts in votes.items()},
        first_slot=sum(call.winner is Winner.A for call in answers),
        vote_entropy=_entropy(sum(votes.values(), Counter())),
        valid=len(answers),
        invalid=sum(map(len, standing.values())) - len(answers),
        forced=sum(Flag.FORCED in call.reading.flags for call in answers),
        without_p=sum(call.p_first is None for call in answers),
        flags=flags.union(*(call.reading.flags for call in sent)),
        calls=len(sent),
        prompt_tokens=sum(call.prompt_tokens or 0 for call in sent),
        cached_tokens=sum(call.cached_tokens or 0 for call in sent),
        completion_tokens=sum(call.completion_tokens or 0 for call in sent),
        latency_s=sum(call.latency_s or 0.0 for call in sent),
    )


def _standing(calls: Sequence[Heard]) -> Heard:
    """What the calls of one sample come to."""
    first, last = calls[0], calls[-1]
    return replace(first, p_first=last.p_first) if first.winner else last


def _causes(calls: Sequence[Heard]) -> list[Outcome]:
    """What can have kept the calls of one sample from an answer."""
    first, *follow_ups = calls
    return [first.outcome, *(call.outcome for call in follow_ups if call.sent)]


def _decide(
    valid: Mapping[Order, Sequence[Heard]], decide: Decide, on_conflict: OnConflict, tie_margin: float
) -> tuple[Winner | None, float, bool | None]:
    voted = {order: fmean(_p_a(call, order, soft=False) for call in calls) for order, calls in valid.items()}
    sides = {_side(p_a, 0.0) for p_a in voted.values()}
    consistent = len(sides) == 1 if len(voted) > 1 else None
    conflict = decide is Decide.VOTE and {Winner.A, Winner.B} <= sides
    if decide is Decide.SOFT or (conflict and on_conflict is OnConflict.SOFT):
        p_a = fmean(fmean(_p_a(call, order, soft=True) for call in calls) for order, calls in valid.items())
        return _side(p_a, tie_margin), p_a, consistent
    p_a = fmean(voted.values())
    if conflict:
        return Winner.TIE if on_conflict is OnConflict.TIE else None, p_a, consistent
    return _side(p_a, tie_margin), p_a, consistent


def _p_a(call: Heard, order: Order, *, soft: bool) -> float:
    assert call.winner is not None
    p_first = call.p_first if soft and call.p_first is not None else VOTE[call.winner]
    return 1 - p_first if order.swapped else p_first


def _in_item_frame(call: Heard, order: Order) -> Winner:
    assert call.winner is not None
    return call.winner.mirrored if order.swapped else call.winner


def _side(p_a: float, margin: float) -> Winner:
    if abs(p_a - 0.5) <= margin + ROUNDING:
        return Winner.TIE
    return Winner.A if p_a > 0.5 else Winner.B


def _entropy(votes: Mapping[Winner, int]) -> float | None:
    total = sum(votes.values())
    if not total:
        return None
    return sum(count / total * math.log2(total / count) for count in votes.values() if count)


def _error(outcomes: Sequence[Outcome]) -> ItemError:
    return next(error for error, causes in PRECEDENCE if causes.intersection(outcomes))


@dataclass(frozen=True, slots=True)
class Verdict:
    """A panel's answer on one item. `winner` is None for an abstention and, with `error`, when there is no answer."""

    winner: Winner | None
    p_a: float | None
    consistent: bool | None
    error: ItemError | None
    opinions: tuple[Opinion, ...]

    @property
    def status(self) -> ItemStatus:
        """A winner, a tie and an abstention are answers; an error is none."""
        return ItemStatus.FAILED if self.error else ItemStatus.SUCCEEDED

    @property
    def message(self) -> str | None:
        """The error as a sentence."""
        return MESSAGES[self.error] if self.error else None


def verdict(opinions: Sequence[Opinion]) -> Verdict:
    """The verdict of a panel of one: its opinion. Raises ValueError for any other panel."""
    (opinion,) = opinions
    return Verdict(opinion.winner, opinion.p_a, opinion.consistent, opinion.error, (opinion,))
