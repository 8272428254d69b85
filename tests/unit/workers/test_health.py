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


def test_a_runtime_that_does_not_say_is_given_more_looks_than_one_that_stands_still(health: Health) -> None:
    health.canary_sent(60.0, 100.0)
    for at in (90.0, 120.0, 150.0):
        health.looked(at, None)
        assert not health.hung
    health.looked(180.0, None)
    assert health.hung


def test_looks_in_vain_and_looks_that_see_it_stand_still_add_up(health: Health) -> None:
    health.canary_sent(60.0, 100.0)
    health.looked(90.0, None)
    health.looked(120.0, 100.0)
    assert not health.hung
    health.looked(150.0, None)
    assert health.hung


def test_one_that_tells_of_progress_after_silence_is_slow(health: Health) -> None:
    health.canary_sent(60.0, 100.0)
    for at in (90.0, 120.0, 150.0):
        health.looked(at, None)
    health.looked(180.0, 101.0)
    health.looked(210.0, None)
    assert not health.hung


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
    now = 100.0
    for longest in (1.0, 2.0, 4.0, 8.0, LONGEST_CANARY_PAUSE, LONGEST_CANARY_PAUSE):
        health.doubted(now)
        since = now
        while not health.canary_due(now):
            now += 0.05
        assert 0.8 * longest <= now - since <= longest + 0.1
        health.canary_answered(now)


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


def test_a_runtime_that_fails_again_and_again_is_given_up() -> None:
    failures = Failures(5)
    for number in range(4):
        seconds = failures.add()
        assert seconds is not None
        assert 0.8 * 2**number <= seconds <= 2**number
    assert failures.add() is None


def test_failures_before_a_server_was_well_for_long_are_forgotten() -> None:
    failures = Failures(2)
    for _ in range(5):
        failures.outlived(WINDOW)
        seconds = failures.add()
        assert seconds is not None
        assert 0.8 <= seconds <= 1.0
    failures.outlived(WINDOW - 1)
    assert failures.add() is None


@given(st.floats(0.0, WINDOW - 1))
def test_one_that_takes_half_an_hour_to_start_is_given_up_too(well_for: float) -> None:
    """The clock goes on by a start and what the server is well for; only that counts."""
    failures, now = Failures(3), 0.0
    pauses = []
    for _ in range(3):
        now += WINDOW
        health = Health(PATIENCE, now)
        health.canary_answered(now)
        now += well_for
        health.answered(now)
        assert health.well_for == pytest.approx(well_for)
        failures.outlived(health.well_for)
        pauses.append(failures.add())
    assert [seconds is None for seconds in pauses] == [False, False, True]


def test_time_before_the_first_good_canary_is_none_of_being_well() -> None:
    health = Health(PATIENCE, 0.0)
    health.answered(WINDOW)
    health.canary_failed(2 * WINDOW)
    assert health.well_for == 0.0
    health.canary_answered(3 * WINDOW)
    health.doubted(3 * WINDOW + 5)
    health.canary_answered(3 * WINDOW + 10)
    assert health.well_for == 10.0


@given(st.integers(0, 10_000))
def test_pauses_double_up_to_a_limit(tries: int) -> None:
    whole = min(2.0 ** min(tries, 20), LONGEST_PAUSE)
    assert 0.8 * whole <= pause(tries, LONGEST_PAUSE) <= whole
