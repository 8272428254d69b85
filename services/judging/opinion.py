"""What a hearing comes to: the opinion of one judge on one item.

Guarantee: everything stands in the item's frame (`A` is the item's first candidate, whatever slot it was shown in), and
exchanging the candidates exchanges the answer. Nothing stands for an answer that was not given: an order without a
valid call leaves no number behind, only an error.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import Any

from services.judging.heard import Heard
from services.judging.pairings import Seating
from services.judging.schedule import Stopped
from services.judging.standing import Pairwise, Standing, rank_grades, rank_pairs, votes_of
from services.judging.weighing import Answer, Rule
from services.vocabulary import Decide, Flag, ItemError, Order, Outcome, Winner

CONFLICT = "orders_conflict"

# Several things can have gone wrong in one order. The first of these that occurred names the error: what another try
# may cure comes before what only another prompt, a longer answer or another judge would. A follow-up that did not
# fit is not among them: the call that it followed did fit, and its own outcome says what was missing.
PRECEDENCE = (
    (ItemError.POISONED, {Outcome.POISONED}),
    (ItemError.RUNTIME_ERROR, {Outcome.FAILED, Outcome.ABORTED}),
    (ItemError.CONTEXT_OVERFLOW, {Outcome.CONTEXT_OVERFLOW}),
    (ItemError.TRUNCATED, {Outcome.TRUNCATED}),
    (ItemError.UNPARSEABLE, {Outcome.UNPARSEABLE}),
)


@dataclass(frozen=True, slots=True)
class Bench:
    """What was heard of one pair, or of one candidate graded alone.

    `seats` and `calls` go by the side of the pair that sits in the first slot; `calls` holds every sample's calls, a
    follow-up after the call that it follows. `stopped` says why no more samples were asked.
    """

    seats: Mapping[Order, Seating]
    calls: Mapping[tuple[Order, int], Sequence[Heard]]
    stopped: Stopped | None = None

    def samples(self, order: Order) -> list[Heard]:
        """What the samples of one order came to."""
        return [come_to(calls) for (side, _), calls in sorted(self.calls.items()) if side is order]


@dataclass(frozen=True, slots=True)
class Opinion:
    """One judge's answer on one item.

    Of two candidates: `winner` is None for an abstention (`on_conflict`) and, with `error`, when an order has no valid
    call; only the latter leaves `p_a` and `consistent` empty. `p_a`: how far A is preferred, the mean over orders of
    the mean over samples of votes, of probabilities or of a score difference's share of the widest one, as `decide`
    says. `consistent`: every order prefers the same side by its votes; None with a single order and for a pointwise
    judge. `votes` counts the valid answers by order, `vote_entropy` is their entropy in bits over A, B and tie.
    `margin` is the mean difference in score points where scores decide. `ranking` is the mean of a GenRM's rankings, 1
    to 6 in the item's frame. `stopped` says why not all samples were asked.

    Of more: `standing` has the winner and the ranking, `pairs` each pair's answer. No standing and no error is an
    abstention: too many pairs abstained for the rest to tie all candidates together.

    `grades` are the candidates' mean scores in the family's own grades, None where it gives none. `first_slot` counts
    the valid answers for the first slot. `valid` and `invalid` count samples with and without an answer, `forced` the
    valid ones that were forced, `without_p` the valid ones without a probability: where `p_a` is soft, these count as
    their votes. `outcomes` counts what the samples came to. `calls` are those that were sent; tokens and seconds are
    sums over them of what the runtime reported (of a call heard in an earlier claim of its chunk, the seconds that the
    worker waited).
    """

    judge: str
    winner: Winner | None
    p_a: float | None
    consistent: bool | None
    error: ItemError | None
    votes: Mapping[Order, Mapping[Winner, int]]
    vote_entropy: float | None
    margin: float | None
    ranking: float | None
    stopped: Stopped | None
    standing: Standing | None
    pairs: tuple[Pairwise, ...]
    grades: tuple[float | None, ...] | None
    first_slot: int
    valid: int
    invalid: int
    forced: int
    without_p: int
    outcomes: Mapping[Outcome, int]
    flags: frozenset[Flag]
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    latency_s: float

    @property
    def reason(self) -> str | None:
        """Why there is no winner: `orders_conflict` for an abstention, else the error's code."""
        if self.error is not None:
            return self.error.value
        return CONFLICT if self.winner is None and self.standing is None else None

    def as_json(self) -> dict[str, Any]:
        """The opinion as it stands in results."""
        body = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "error"}
        return body | {
            "winner": self.winner if self.standing is None else self.standing.winner,
            "reason": self.reason,
            "votes": self.votes,
            "outcomes": {outcome.value: count for outcome, count in self.outcomes.items()},
            "flags": sorted(flag.value for flag in self.flags),
            "standing": None if self.standing is None else self.standing.as_json(),
            "pairs": [pair.as_json() for pair in self.pairs],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Opinion":
        """The opinion that `as_json` wrote."""
        rest = {name: value for name, value in body.items() if name != "reason"}
        reason, ranked = body["reason"], body["standing"]
        return cls(
            **rest
            | {
                "winner": Winner(body["winner"]) if body["winner"] is not None and ranked is None else None,
                "error": ItemError(reason) if reason and reason != CONFLICT else None,
                "votes": votes_of(body["votes"]),
                "outcomes": {Outcome(outcome): count for outcome, count in body["outcomes"].items()},
                "flags": frozenset(map(Flag, body["flags"])),
                "standing": None if ranked is None else Standing.from_json(ranked),
                "pairs": tuple(map(Pairwise.from_json, body["pairs"])),
                "grades": None if body["grades"] is None else tuple(body["grades"]),
            }
        )


def come_to(calls: Sequence[Heard]) -> Heard:
    """What the calls of one sample come to.

    A follow-up of a call without an answer stands in its place if it was sent; one of a call with an answer lends it
    its probability and nothing else.
    """
    first, last = calls[0], calls[-1]
    if first.answered:
        return replace(first, p_first=last.p_first, expected=last.expected)
    return last if last.sent else first


def weigh(judge: str, candidates: int, benches: Sequence[Bench], rule: Rule, flags: frozenset[Flag]) -> Opinion:
    """Weigh what was heard of an item with so many candidates, one bench a pair (or a candidate graded alone)."""
    samples = [heard for bench in benches for side in bench.seats for heard in bench.samples(side)]
    answers = [heard for heard in samples if heard.answered]
    sent = [heard for bench in benches for calls in bench.calls.values() for heard in calls if heard.sent]
    grades = _mean_grades(benches, rule, candidates) if rule.scales.grades else None
    counted: dict[str, Any] = {
        "judge": judge,
        "grades": grades,
        "first_slot": sum(heard.reading.winner is Winner.A for heard in answers),
        "valid": len(answers),
        "invalid": len(samples) - len(answers),
        "forced": sum(Flag.FORCED in heard.reading.flags for heard in answers),
        "without_p": sum(not heard.sure for heard in answers),
        "outcomes": dict(Counter(heard.outcome for heard in samples)),
        "flags": flags.union(*(heard.reading.flags for heard in sent)),
        "calls": len(sent),
        "prompt_tokens": sum(heard.prompt_tokens or 0 for heard in sent),
        "cached_tokens": sum(heard.cached_tokens or 0 for heard in sent),
        "completion_tokens": sum(heard.completion_tokens or 0 for heard in sent),
        "latency_s": sum(heard.latency_s or 0.0 for heard in sent),
    }
    if candidates == 2:
        (bench,) = benches
        return Opinion(**counted, **_pair(bench, rule), standing=None, pairs=())
    if rule.scales.pairwise:
        pairs = tuple(_pairwise(bench, rule) for bench in benches)
        told = ((pair, pair.share) for pair in pairs)
        answered = [(pair.first, pair.second, p, pair.answers) for pair, p in told if p is not None]
        ranked = rank_pairs(answered, candidates)
    else:
        pairs = ()
        ranked = _rank_graded(grades, rule)
    silent = [cause for bench in benches for cause in _silence(bench)]
    return Opinion(
        **counted,
        **NO_PAIR,
        error=_error(silent) if ranked is None and silent else None,
        standing=ranked,
        pairs=pairs,
    )


NO_PAIR: dict[str, Any] = {
    **dict.fromkeys(("winner", "p_a", "consistent", "vote_entropy", "margin", "ranking", "stopped")),
    "votes": {},
}


def _pair(bench: Bench, rule: Rule) -> dict[str, Any]:
    """What one pair came to, by the fields of an opinion."""
    valid = _valid(bench, rule)
    votes = _votes(bench) if rule.scales.pairwise else {}
    silent = _silence(bench)
    decision = None if silent else rule.decide(valid)
    by_score = rule.scales.decide is Decide.SCORES or not rule.scales.pairwise
    return {
        "winner": decision.winner if decision else None,
        "p_a": decision.p if decision else None,
        "consistent": decision.consistent if decision else None,
        "error": _error(silent) if silent else None,
        "votes": votes,
        "vote_entropy": _entropy(sum(map(Counter, votes.values()), Counter())),
        "margin": (decision.p - 0.5) / rule.scales.unit if decision and by_score else None,
        "ranking": _ranking(bench),
        "stopped": bench.stopped,
    }


def _pairwise(bench: Bench, rule: Rule) -> Pairwise:
    """What one of several pairs came to."""
    pair = _pair(bench, rule)
    seat = next(iter(bench.seats.values()))
    first, second = seat.candidates[::-1] if seat.order.swapped else seat.candidates
    kept = {name: pair[name] for name in ("winner", "consistent", "error", "votes")}
    return Pairwise(first, second, p=pair["p_a"], **kept)


def _valid(bench: Bench, rule: Rule) -> dict[Order, list[Answer]]:
    return {
        side: [rule.scales.answer(heard, swapped=side.swapped) for heard in bench.samples(side) if heard.answered]
        for side in bench.seats
    }


def _votes(bench: Bench) -> dict[Order, dict[Winner, int]]:
    votes = {}
    for side in bench.seats:
        shown = [heard.reading.winner for heard in bench.samples(side) if heard.reading.winner]
        counts = Counter(winner.mirrored if side.swapped else winner for winner in shown)
        votes[side] = {winner: counts[winner] for winner in Winner}
    return votes


def _silence(bench: Bench) -> list[Outcome]:
    """What can have kept the orders that have no answer from one; empty when every order has one."""
    return [
        cause
        for side in bench.seats
        if not any(heard.answered for heard in bench.samples(side))
        for (order, _), calls in bench.calls.items()
        if order is side
        for cause in _causes(calls)
    ]


def _causes(calls: Sequence[Heard]) -> list[Outcome]:
    """What can have kept the calls of one sample from an answer."""
    first, *follow_ups = calls
    return [first.outcome, *(call.outcome for call in follow_ups if call.sent)]


def _ranking(bench: Bench) -> float | None:
    """The mean over orders of the mean ranking, 1 to 6 in the item's frame; "both bad" ranks nothing."""
    means = []
    for side in bench.seats:
        shown = [heard.reading.ranking for heard in bench.samples(side) if heard.answered]
        ranks = [7 - rank if side.swapped else rank for rank in shown if rank is not None and rank > 0]
        means += [fmean(ranks)] if ranks else []
    return fmean(means) if means else None


def _mean_grades(benches: Sequence[Bench], rule: Rule, candidates: int) -> tuple[float | None, ...]:
    """Each candidate's mean over its seats of the mean over samples; None for one without a grade."""
    seated: list[list[float]] = [[] for _ in range(candidates)]
    for bench in benches:
        for side, seat in bench.seats.items():
            answered = [heard for heard in bench.samples(side) if heard.answered]
            for slot, candidate in enumerate(seat.candidates):
                grades = [_grade(heard, slot, rule) for heard in answered]
                seated[candidate] += [fmean(grades)] if grades else []
    return tuple(fmean(means) if means else None for means in seated)


def _grade(heard: Heard, slot: int, rule: Rule) -> float:
    if rule.scales.decide is Decide.SOFT and heard.expected is not None:
        return heard.expected
    return heard.reading.scores[slot]


def _rank_graded(grades: Sequence[float | None] | None, rule: Rule) -> Standing | None:
    assert grades is not None
    assert rule.scales.grades is not None
    known = [grade for grade in grades if grade is not None]
    return rank_grades(known, *rule.scales.grades, rule.tie_margin) if len(known) == len(grades) else None


def _entropy(votes: Counter[Winner]) -> float | None:
    total = votes.total()
    if not total:
        return None
    return sum(count / total * math.log2(total / count) for count in votes.values() if count)


def _error(outcomes: Sequence[Outcome]) -> ItemError:
    return next(error for error, causes in PRECEDENCE if causes.intersection(outcomes))
