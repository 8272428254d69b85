"""Samples are asked as long as they can matter, never in vain; a sequential test errs as seldom as it says."""

import random
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.judging.pairings import connected, pairings, seatings
from services.judging.schedule import EarlyStop, Schedule
from services.judging.stopping import confident, evidence
from services.judging.weighing import Answer, Rule, Scales
from services.vocabulary import Decide, OnConflict, Order, Orders, Winner

BOTH = (Order.AB, Order.BA)


def vote(value: float) -> Answer:
    return Answer(value, value, value)


def rule(decide: Decide = Decide.VOTE, on_conflict: OnConflict = OnConflict.TIE, tie_margin: float = 0.0) -> Rule:
    return Rule(Scales(decide, pairwise=True, grades=None, margin="blended"), on_conflict, tie_margin)


def asked(
    draw: Callable[[Order, int], Answer | None], samples: int, early_stop: EarlyStop, by: Rule
) -> tuple[Schedule, list[Answer | None]]:
    """A schedule driven to its end."""
    schedule = Schedule(BOTH, samples, by, early_stop)
    answers: list[Answer | None] = []
    while len(answers) < schedule.granted:
        answers += [draw(order, sample) for order, sample in schedule.places[len(answers) : schedule.granted]]
        schedule.advance(answers)
    return schedule, answers


def decided(answers: list[Answer | None], by: Rule) -> Winner | None:
    orders = {order: [a for a in answers[at::2] if a is not None] for at, order in enumerate(BOTH)}
    return by.decide(orders).winner if all(orders.values()) else None


@pytest.mark.parametrize(("samples", "calls"), [(1, 2), (2, 3), (3, 4), (5, 6), (9, 10)])
def test_a_unanimous_judge_is_asked_for_a_bare_majority(samples: int, calls: int) -> None:
    schedule, answers = asked(lambda *_: vote(1.0), samples, "certain", rule())
    assert (len(answers), schedule.stopped) == (calls, "certain" if samples > 1 else None)


def test_never_asks_for_all() -> None:
    schedule, answers = asked(lambda *_: vote(1.0), 5, "never", rule())
    assert (len(answers), schedule.stopped) == (10, None)


def test_a_biased_judge_whose_orders_conflict_is_soon_known_to_tie() -> None:
    schedule, answers = asked(lambda order, _: vote(0.0 if order.swapped else 1.0), 5, "certain", rule())
    assert schedule.stopped == "certain"
    assert len(answers) == 6  # three of five in each order
    assert decided(answers, rule()) is Winner.TIE


def test_samples_without_an_answer_settle_nothing() -> None:
    schedule, answers = asked(lambda *_: None, 3, "certain", rule())
    assert (len(answers), schedule.stopped) == (6, None)


ANSWERS = st.one_of(
    st.none(),
    st.sampled_from([vote(0.0), vote(0.5), vote(1.0)]),
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)).map(
        lambda given: Answer(given[0], given[1], given[0])
    ),
)
SOFT_ANSWERS = st.one_of(st.none(), st.floats(0, 1).map(lambda p: Answer(float(p > 0.5), p, p)))


@settings(max_examples=300)
@given(
    data=st.data(),
    samples=st.integers(1, 6),
    on_conflict=st.sampled_from(OnConflict),
    tie_margin=st.sampled_from([0.0, 0.1]),
    decide=st.sampled_from([Decide.VOTE, Decide.SOFT]),
)
def test_stopping_when_certain_never_changes_the_winner(data, samples, on_conflict, tie_margin, decide) -> None:
    kind = ANSWERS if decide is Decide.VOTE else SOFT_ANSWERS
    all_of_them = {place: data.draw(kind) for place in product(BOTH, range(samples))}
    by = rule(decide, on_conflict, tie_margin)
    schedule, few = asked(lambda order, sample: all_of_them[order, sample], samples, "certain", by)
    _, whole = asked(lambda order, sample: all_of_them[order, sample], samples, "never", by)
    assert decided(few, by) == decided(whole, by)
    assert schedule.stopped is None or len(few) < len(whole)


@settings(max_examples=200)
@given(votes=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=12, max_size=12), samples=st.integers(2, 6))
def test_no_call_could_have_been_spared_by_waiting_for_another(votes: list[float], samples: int) -> None:
    """One call at a time, looked at after each, never ends before the wave that was sent at once."""
    by = rule()
    _, waves = asked(lambda order, sample: vote(votes[2 * sample + order.swapped]), samples, "certain", by)
    one_by_one: list[Answer] = []
    places = Schedule(BOTH, samples, by, "never").places
    while len(one_by_one) < len(places):
        orders = {order: one_by_one[at::2] for at, order in enumerate(BOTH)}
        if by.certain(orders, {order: samples - len(orders[order]) for order in BOTH}):
            break
        order, sample = places[len(one_by_one)]
        one_by_one.append(vote(votes[2 * sample + order.swapped]))
    assert len(waves) == len(one_by_one)


def test_the_evidence_of_one_sided_answers() -> None:
    assert evidence([]) == 1
    assert evidence([0.5] * 9) == 1
    assert evidence([1.0] * 6) == pytest.approx((1.5**6 + 1.9**6) / 2)
    assert evidence([1.0] * 6) >= 20 > evidence([1.0] * 5)


def test_only_as_many_answers_count_as_the_other_order_has() -> None:
    assert confident([[1.0] * 6, []], 0.95) is None
    assert confident([[1.0] * 3, [1.0] * 3], 0.95) is Winner.A
    assert confident([[0.0] * 3, [0.0] * 9], 0.95) is Winner.B
    assert confident([[1.0] * 6], 0.95) is Winner.A


@pytest.mark.parametrize("bias", [0.0, 0.3])
@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95])
def test_the_sequential_test_errs_no_more_often_than_it_says(bias: float, confidence: float) -> None:
    """No preference in the long run, with and without position bias: looked at after each of 30 pairs of answers, the
    chance to stop for side A stays below 1 - confidence."""
    dice = random.Random(7)
    trials, wrong = 1000, 0
    for _ in range(trials):
        ab: list[float] = []
        ba: list[float] = []
        for _ in range(30):
            ab.append(float(dice.random() < 0.5 + bias))
            ba.append(float(dice.random() < 0.5 - bias))
            if (found := confident([ab, ba], confidence)) is not None:
                wrong += found is Winner.A
                break
    # three standard errors above the promised rate would be a failure of the promise, not of chance
    assert wrong / trials <= (1 - confidence) + 3 * ((1 - confidence) * confidence / trials) ** 0.5


@pytest.mark.parametrize(
    ("pairs", "candidates", "expected"),
    [
        ("all", 3, ((0, 1), (0, 2), (1, 2))),
        ("circular", 4, ((0, 1), (1, 2), (2, 3), (3, 0))),
        ("circular", 2, ((0, 1),)),
        (((2, 0), (1, 2)), 3, ((2, 0), (1, 2))),
    ],
)
def test_the_pairs_that_meet(pairs, candidates: int, expected: tuple[tuple[int, int], ...]) -> None:
    assert pairings(pairs, candidates) == expected
    assert connected(expected, candidates)


def test_an_order_that_comes_out_even_is_an_end_where_conflicts_are_decided_by_probabilities() -> None:
    by = rule(on_conflict=OnConflict.SOFT, tie_margin=0.1)
    given = {
        Order.AB: [Answer(0.0, 0.48, 0.0), Answer(1.0, 0.99, 1.0), Answer(1.0, 0.99, 1.0)],
        Order.BA: [Answer(0.0, 0.33, 0.0), Answer(1.0, 0.86, 1.0)],
    }
    last = Answer(1.0, 0.52, 1.0)
    assert not by.certain(given, {Order.AB: 0, Order.BA: 1})
    assert by.decide(given | {Order.BA: [*given[Order.BA], last]}).winner is Winner.A
    assert by.decide(given).winner is Winner.TIE


def test_the_test_takes_no_preference_within_the_tie_margin_for_one() -> None:
    assert confident([[0.69] * 12] * 2, 0.9) is Winner.A
    assert confident([[0.69] * 12] * 2, 0.9, tie_margin=0.2) is None
    assert confident([[0.31] * 12] * 2, 0.9, tie_margin=0.1) is Winner.B
    assert evidence([0.6] * 50, 0.6) == pytest.approx(1)


def test_pairs_that_leave_a_candidate_alone_do_not_connect() -> None:
    assert not connected(((0, 1), (2, 3)), 4)
    assert not connected(((0, 1),), 3)


def test_each_pair_is_seated_in_both_orders() -> None:
    seated = seatings(((0, 1), (0, 2)), Orders.BOTH, "item")
    assert [[(seat.match, seat.order, seat.candidates) for seat in pair] for pair in seated] == [
        [(0, Order.AB, (0, 1)), (0, Order.BA, (1, 0))],
        [(1, Order.AB, (0, 2)), (1, Order.BA, (2, 0))],
    ]
