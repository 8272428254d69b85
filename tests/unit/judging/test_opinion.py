"""What a hearing comes to: hand-computed cases, and the symmetry that every one of them must have."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.judging.heard import Heard, unanswered
from services.judging.opinion import Bench, Opinion, weigh
from services.judging.pairings import seatings
from services.judging.panel import single
from services.judging.reading import Reading
from services.judging.weighing import Rule, Scales
from services.vocabulary import Decide, Flag, ItemError, ItemStatus, OnConflict, Order, Orders, Outcome, Winner

A, B, TIE = Winner.A, Winner.B, Winner.TIE


def answered(winner: Winner, p_first: float | None = None, *flags: Flag) -> Heard:
    outcome = Outcome.TIE if winner is TIE else Outcome.DECIDED
    return Heard(Reading(outcome, winner, "test", frozenset(flags)), p_first)


def unread(outcome: Outcome) -> Heard:
    return Heard(Reading(outcome, None, "test"))


def weighed(
    heard: Mapping[Order, Sequence[Sequence[Heard]]],
    decide: Decide = Decide.VOTE,
    on_conflict: OnConflict = OnConflict.TIE,
    tie_margin: float = 0.0,
) -> Opinion:
    seats = {seat.order: seat for seat in seatings([(0, 1)], Orders.BOTH, "item")[0] if seat.order in heard}
    calls = {(order, number): calls for order, samples in heard.items() for number, calls in enumerate(samples)}
    rule = Rule(Scales(decide, pairwise=True, grades=None, margin="blended"), on_conflict, tie_margin)
    return weigh("judge", 2, [Bench(seats, calls)], rule, frozenset())


def opinion(ab: list[Heard], ba: list[Heard] | None = None, **options: object) -> Opinion:
    heard = {Order.AB: [(call,) for call in ab]} | ({Order.BA: [(call,) for call in ba]} if ba is not None else {})
    return weighed(heard, **options)


def test_an_answer_is_mapped_back_from_the_slot_to_the_item() -> None:
    # Shown second and preferred there: the item's first candidate.
    o = opinion([answered(A)], [answered(B)])
    assert (o.winner, o.p_a, o.consistent, o.first_slot) == (A, 1.0, True, 1)
    assert o.votes == {Order.AB: {A: 1, B: 0, TIE: 0}, Order.BA: {A: 1, B: 0, TIE: 0}}


def test_an_order_with_more_valid_calls_does_not_weigh_more() -> None:
    o = opinion([answered(A), answered(A), answered(B)], [answered(B)])
    assert o.p_a == pytest.approx((2 / 3 + 1) / 2)
    assert o.vote_entropy == pytest.approx(-(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25)))


def test_a_tie_is_half_a_vote() -> None:
    o = opinion([answered(TIE)], [answered(B)])
    assert (o.p_a, o.winner, o.consistent) == (0.75, A, False)


@pytest.mark.parametrize(("margin", "winner"), [(0.0, A), (0.24, A), (0.25, TIE), (0.5, TIE)])
def test_within_the_margin_lies_a_tie(margin: float, winner: Winner) -> None:
    assert opinion([answered(TIE)], [answered(B)], tie_margin=margin).winner is winner


@pytest.mark.parametrize(
    ("on_conflict", "winner", "p_a"),
    [(OnConflict.TIE, TIE, 0.5), (OnConflict.ABSTAIN, None, 0.5), (OnConflict.SOFT, A, 0.6)],
)
def test_orders_that_disagree_are_a_conflict_for_votes(
    on_conflict: OnConflict, winner: Winner | None, p_a: float
) -> None:
    o = opinion([answered(A, 0.9)], [answered(A, 0.7)], on_conflict=on_conflict)
    assert (o.winner, o.consistent, o.error) == (winner, False, None)
    assert o.p_a == pytest.approx(p_a)
    assert single(o).status is ItemStatus.SUCCEEDED
    assert o.reason == ("orders_conflict" if winner is None else None)


def test_a_conflict_is_one_however_the_samples_fell() -> None:
    o = opinion([answered(A)] * 3, [answered(A), answered(A), answered(B)])
    assert o.p_a == pytest.approx(2 / 3)
    assert (o.winner, o.consistent) == (TIE, False)


def test_soft_answers_are_averaged_over_orders() -> None:
    o = opinion([answered(A, 0.9)], [answered(A, 0.6)], decide=Decide.SOFT)
    assert o.p_a == pytest.approx(0.65)
    assert (o.winner, o.consistent) == (A, False)


def test_an_answer_without_a_probability_counts_as_its_vote_and_is_counted() -> None:
    o = opinion([answered(A)], [answered(A, 0.6)], decide=Decide.SOFT)
    assert o.p_a == pytest.approx((1.0 + 0.4) / 2)
    assert (o.valid, o.without_p) == (2, 1)


def test_a_follow_up_lends_an_answer_its_probability_and_nothing_else() -> None:
    for lent, p_a, without_p in ((answered(B, 0.3), 0.3, 0), (unanswered(Outcome.FAILED), 1.0, 1)):
        o = weighed({Order.AB: [(answered(A), lent)]}, decide=Decide.SOFT)
        assert (o.p_a, o.without_p) == (pytest.approx(p_a), without_p)
        assert (o.votes[Order.AB][A], o.first_slot, o.valid, o.invalid, o.forced, o.calls) == (1, 1, 1, 0, 0, 2)


def test_only_calls_that_were_sent_are_counted() -> None:
    sent = replace(answered(A), prompt_tokens=70, cached_tokens=7, completion_tokens=3, latency_s=0.5)
    too_long = replace(unanswered(Outcome.CONTEXT_OVERFLOW), prompt_tokens=9000)
    o = opinion([sent, unanswered(Outcome.FAILED)], [too_long])
    assert (o.calls, o.prompt_tokens, o.cached_tokens, o.completion_tokens, o.latency_s) == (2, 70, 7, 3, 0.5)
    assert (o.invalid, o.error) == (2, ItemError.CONTEXT_OVERFLOW)


@pytest.mark.parametrize("missing", [Outcome.TRUNCATED, Outcome.UNPARSEABLE])
def test_a_follow_up_that_did_not_fit_leaves_the_error_of_the_call_that_did(missing: Outcome) -> None:
    o = weighed({Order.AB: [(unread(missing), unanswered(Outcome.CONTEXT_OVERFLOW))]}, decide=Decide.VOTE)
    assert (o.error, o.invalid, o.calls) == (missing.value, 1, 1)
    both = {Order.AB: [(unread(missing), unanswered(Outcome.FAILED))]}
    assert weighed(both).error is ItemError.RUNTIME_ERROR


def test_a_follow_up_that_was_never_sent_is_not_what_the_sample_came_to() -> None:
    o = weighed({Order.AB: [(unread(Outcome.TRUNCATED), unanswered(Outcome.CONTEXT_OVERFLOW))]})
    assert (o.error, dict(o.outcomes)) == (ItemError.TRUNCATED, {Outcome.TRUNCATED: 1})


@given(p=st.floats(0, 1))
def test_pure_position_bias_is_a_tie(p: float) -> None:
    slot = A if p >= 0.5 else B
    assert opinion([answered(slot, p)], [answered(slot, p)], decide=Decide.SOFT).winner is TIE


def test_one_order_cannot_be_inconsistent() -> None:
    assert opinion([answered(A)]).consistent is None


def test_invalid_calls_are_left_out_while_their_order_has_a_valid_one() -> None:
    o = opinion([answered(A), unread(Outcome.TRUNCATED)], [answered(B)])
    assert (o.winner, o.valid, o.invalid, o.error) == (A, 2, 1, None)


def test_the_last_call_of_a_sample_stands() -> None:
    forced = answered(B, 0.2, Flag.FORCED)
    o = weighed({Order.AB: [(unread(Outcome.TRUNCATED), forced)]}, decide=Decide.VOTE)
    assert (o.winner, o.valid, o.invalid, o.forced, o.calls) == (B, 1, 0, 1, 2)


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ([unread(Outcome.UNPARSEABLE)], ItemError.UNPARSEABLE),
        ([unread(Outcome.UNPARSEABLE), unread(Outcome.TRUNCATED)], ItemError.TRUNCATED),
        ([unread(Outcome.TRUNCATED), unanswered(Outcome.CONTEXT_OVERFLOW)], ItemError.CONTEXT_OVERFLOW),
        ([unanswered(Outcome.CONTEXT_OVERFLOW), unanswered(Outcome.FAILED)], ItemError.RUNTIME_ERROR),
        ([unanswered(Outcome.ABORTED)], ItemError.RUNTIME_ERROR),
    ],
)
def test_an_order_without_an_answer_leaves_no_number_behind(calls: list[Heard], error: ItemError) -> None:
    for ab, ba in ((calls, [answered(A)]), ([answered(A)], calls), (calls, calls)):
        o = opinion(ab, ba, decide=Decide.SOFT)
        assert (o.winner, o.p_a, o.consistent, o.error, o.reason) == (None, None, None, error, error)
        v = single(o)
        assert (v.status, v.error, v.winner) == (ItemStatus.FAILED, error, None)
        assert v.message


def test_errors_of_an_order_that_has_an_answer_are_not_the_items() -> None:
    o = opinion([unread(Outcome.UNPARSEABLE)], [unanswered(Outcome.FAILED), answered(A)])
    assert o.error is ItemError.UNPARSEABLE


def test_a_verdict_of_one_is_its_opinion_as_results_show_it() -> None:
    v = single(opinion([answered(A, None, Flag.CONFLICTING)], [answered(B)]))
    assert (v.winner, v.p_a, v.consistent) == (A, 1.0, True)
    (opined,) = v.opinions
    one = json.loads(json.dumps(opined.as_json()))
    assert one["votes"] == {"ab": {"A": 1, "B": 0, "tie": 0}, "ba": {"A": 1, "B": 0, "tie": 0}}
    assert (one["judge"], one["reason"], one["flags"], one["vote_entropy"]) == ("judge", None, ["conflicting"], 0.0)


# One call: an answer with or without a probability on its side, or none.
SOFT = st.floats(0.5, 1).flatmap(
    lambda p: st.sampled_from([answered(A if p > 0.5 else TIE, p), answered(B if p > 0.5 else TIE, 1 - p)])
)
CALLS = st.one_of(
    st.sampled_from([answered(A), answered(B), answered(TIE), answered(A, None, Flag.FORCED)]),
    st.sampled_from([unread(Outcome.TRUNCATED), unread(Outcome.UNPARSEABLE), unanswered(Outcome.FAILED)]),
    SOFT,
)
HEARINGS = st.lists(st.sampled_from(Order), min_size=1, max_size=2, unique=True).flatmap(
    lambda orders: st.fixed_dictionaries(
        {order: st.lists(st.lists(CALLS, min_size=1, max_size=2), min_size=1, max_size=3) for order in orders}
    )
)
OPTIONS = st.fixed_dictionaries(
    {
        "decide": st.sampled_from([Decide.VOTE, Decide.SOFT]),
        "on_conflict": st.sampled_from(OnConflict),
        "tie_margin": st.sampled_from([0.0, 0.1, 0.25, 0.5]),
    }
)


def mirror(call: Heard) -> Heard:
    winner = call.reading.winner.mirrored if call.reading.winner else None
    p_first = None if call.p_first is None else 1 - call.p_first
    return replace(call, reading=replace(call.reading, winner=winner), p_first=p_first)


@given(heard=HEARINGS, options=OPTIONS)
def test_mirrored_answers_make_the_mirrored_opinion(heard, options) -> None:
    seen = weighed(heard, **options)
    mirrored = weighed(
        {order: [[*map(mirror, calls)] for calls in samples] for order, samples in heard.items()}, **options
    )
    assert mirrored == replace(
        seen,
        winner=seen.winner.mirrored if seen.winner else None,
        p_a=None if seen.p_a is None else pytest.approx(1 - seen.p_a, abs=1e-12),
        votes={order: {A: sides[B], B: sides[A], TIE: sides[TIE]} for order, sides in seen.votes.items()},
        first_slot=seen.valid - sum(sides[TIE] for sides in seen.votes.values()) - seen.first_slot,
        vote_entropy=None if seen.vote_entropy is None else pytest.approx(seen.vote_entropy, abs=1e-12),
    )


@given(heard=HEARINGS, options=OPTIONS)
def test_exchanging_the_candidates_exchanges_the_answer(heard, options) -> None:
    # The same completions, but what was the given order is the swapped one now.
    other = {Order.AB: Order.BA, Order.BA: Order.AB}
    seen = weighed(heard, **options)
    exchanged = weighed({other[order]: samples for order, samples in heard.items()}, **options)
    assert exchanged.winner == (seen.winner.mirrored if seen.winner else None)
    assert exchanged.p_a == (None if seen.p_a is None else pytest.approx(1 - seen.p_a, abs=1e-12))
    assert (exchanged.consistent, exchanged.error, exchanged.first_slot) == (
        seen.consistent,
        seen.error,
        seen.first_slot,
    )


@given(heard=HEARINGS, options=OPTIONS)
def test_an_opinion_comes_back_from_json(heard, options) -> None:
    seen = weighed(heard, **options)
    assert Opinion.from_json(json.loads(json.dumps(seen.as_json()))) == seen
