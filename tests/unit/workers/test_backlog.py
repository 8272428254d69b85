"""The backlog: a tenth of a second of work, within bounds."""

import pytest

from workers.runtime.backlog import LEAST, LONGEST, Backlog


@pytest.mark.parametrize(
    ("a_second", "calls"), [(1, LEAST), (16, LEAST), (20, LEAST), (21, 3), (320, 32), (1000, 100), (5000, LONGEST)]
)
def test_it_is_a_tenth_of_what_ends_in_a_second(a_second: int, calls: int) -> None:
    backlog = Backlog(now=100.0)
    for number in range(1, 3 * a_second + 1):
        backlog.ended(100.0 + number / a_second)
    assert backlog.calls == calls


def test_it_follows_the_rate_within_two_seconds() -> None:
    backlog = Backlog(now=0.0)
    for number in range(1, 801):
        backlog.ended(number / 400)
    assert backlog.calls == 40
    for number in range(1, 41):
        backlog.ended(2 + number / 20)
    assert backlog.calls == LEAST
    backlog.ended(60.0)  # nothing ended for a long time
    assert backlog.calls == LEAST
