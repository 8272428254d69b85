"""When a runtime counts as well, hung or broken, and when it is given up: on a clock that the tests turn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.runtime.health import (
    LONGEST_CANARY_PAUSE,
    LONGEST_PAUSE,
    WINDOW,
    Failures,
    Health,
    pause,
)

PATIENCE = 60.0


@pytest.fixture
def health() -> Health:
    """A runtime that answered its first canary at 0."""
    health = Health(PATIENCE, 0.0)
    health.canary_sent(0.0, 100.0)
    health.canary_answered(0.0)
    return health


def test_a_runtime_is_not_well_before_its_first_canary_is_answered() -> None:
    health = Health(PATIENCE, 5.0)
    assert not health.well
    assert health.canary_due(5.0)
    health.canary_sent(5.0, None)
    health.canary_answered(6.0)
    assert health.well


def test_no_canary_is_sent_while_ordinary_calls_are_answered(health: Health) -> None:
    for second in range(0, 600, 50):
        assert not health.canary_due(second)
        health.answered(second)
    assert not health.canary_due(550 + PATIENCE - 1)
    assert health.canary_due(550 + PATIENCE)


def test_it_is_hung_when_two_looks_see_no_token_more(health: Health) -> None:
    health.canary_sent(60.0, 100.0)
    assert not health.look_due(89.0)
    assert health.look_due(90.0)
    health.looked(90.0, 100.0)
    assert not health.hung
    health.looked(120.0, 100.0)
    assert health.hung


def test_a_runtime_that_does_not_say_is_as_still_as_one_that_stands_still(health: Health) -> None:
    health.canary_sent(60.0, None)
    health.looked(90.0, None)
    health.looked(120.0, None)
    assert health.hung


@given(st.lists(st.booleans(), max_size=40))
def test_a_slow_runtime_is_never_hung(pattern: list[bool]) -> None:
    """Whatever the looks see: as long as no two in a row see nothing, it is slow."""
    health = Health(PATIENCE, 0.0)
    health.canary_answered(0.0)
    health.canary_sent(60.0, 100.0)
    tokens, still = 100.0, 0
    for at, seen in enumerate(pattern):
        moves = seen or still == 1
        still = 0 if moves else still + 1
        tokens += moves
        health.looked(90.0 + 30.0 * at, tokens)
        assert not health.hung
        assert health.well


def test_an_answer_to_any_call_shows_that_it_is_not_hung(health: Health) -> None:
    health.canary_sent(60.0, 100.0)
    health.looked(90.0, 100.0)
    health.answered(100.0)
    health.looked(120.0, 100.0)
    assert not health.hung


def test_a_doubted_runtime_is_well_only_after_a_canary(health: Health) -> None:
    health.doubted(10.0)
    health.answered(10.5)
    assert not health.well
    assert not health.canary_due(10.5)
    assert health.canary_due(11.0)
    health.canary_sent(11.0, 100.0)
    health.canary_answered(11.1)
    assert health.well


def test_one_that_is_doubted_again_and_again_is_tried_ever_later(health: Health) -> None:
    waited = []
    now = 100.0
    for _ in range(6):
        health.doubted(now)
        since = now
        while not health.canary_due(now):
            now += 0.05
        waited.append(now - since)
        health.canary_answered(now)
    assert waited == sorted(waited)
    assert 0.8 <= waited[0] <= 1.1
    assert 0.8 * LONGEST_CANARY_PAUSE <= waited[-1] <= LONGEST_CANARY_PAUSE + 0.1


def test_a_runtime_that_was_well_for_a_while_is_tried_soon(health: Health) -> None:
    for now in (100.0, 101.5, 104.0, 108.0):
        health.doubted(now)
        health.canary_answered(now + 0.1)
    health.doubted(108.1 + PATIENCE)
    assert health.canary_due(108.1 + PATIENCE + 1.0)


def test_it_is_broken_when_canaries_stay_bad_for_its_patience(health: Health) -> None:
    health.canary_failed(100.0)
    assert not health.well
    health.canary_failed(150.0)
    assert not health.broken(159.0)
    assert health.broken(160.0)


def test_a_good_canary_among_bad_ones_starts_that_time_anew(health: Health) -> None:
    health.canary_failed(100.0)
    health.canary_answered(130.0)
    health.canary_failed(150.0)
    assert not health.broken(160.0)
    assert health.broken(210.0)


def test_failures_that_come_too_fast_are_too_many() -> None:
    failures = Failures(5)
    pauses = [failures.add(at * 100.0) for at in range(4)]
    for number, seconds in enumerate(pauses):
        assert seconds is not None
        assert 0.8 * 2**number <= seconds <= 2**number
    assert failures.add(400.0) is None


def test_failures_that_are_long_past_are_forgotten() -> None:
    failures = Failures(2)
    for number in range(5):
        seconds = failures.add(number * WINDOW)
        assert seconds is not None
        assert 0.8 <= seconds <= 1.0


@given(st.integers(0, 10_000))
def test_pauses_double_up_to_a_limit(tries: int) -> None:
    whole = min(2.0 ** min(tries, 20), LONGEST_PAUSE)
    assert 0.8 * whole <= pause(tries, LONGEST_PAUSE) <= whole
