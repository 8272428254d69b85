"""When a webhook is sent again, and when it is given up."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.vocabulary import DeliveryState
from services.webhooks.schedule import Standing, retry_after, standing

DAY = 24 * 3600.0
NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
ALMOST_ONE = 0.999


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_a_2xx_is_a_delivery(status: int) -> None:
    assert standing(status, None, 1, 0.0) == Standing(DeliveryState.DELIVERED)


@pytest.mark.parametrize("status", [None, 199, 300, 301, 302, 307, 308, 400, 401, 404, 429, 500, 503])
def test_ten_attempts_over_three_days_then_failed(status: int | None) -> None:
    minutes, hours = 60.0, 3600.0
    planned = [5, 5 * minutes, 30 * minutes, 2 * hours, 5 * hours, 10 * hours, 14 * hours, 20 * hours, 24 * hours]
    seen = [standing(status, None, number, 0.0) for number in range(1, 11)]
    assert seen == [Standing(DeliveryState.PENDING, delay) for delay in planned] + [Standing(DeliveryState.FAILED)]


def test_attempts_lost_in_crashes_do_not_go_past_the_end_of_the_schedule() -> None:
    assert standing(500, None, 57, 0.0) == Standing(DeliveryState.FAILED)


def test_jitter_spreads_attempts_to_the_later_side_only() -> None:
    assert standing(500, None, 2, 0.0).delay == 300
    assert standing(500, None, 2, 0.5).delay == pytest.approx(330)
    late = standing(500, None, 2, ALMOST_ONE).delay
    assert late is not None and 359 < late < 360


def test_gone_is_given_up_at_once() -> None:
    assert standing(410, None, 1, 0.0) == Standing(DeliveryState.FAILED)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("asked", "delay"), [(None, 5.0), (1.0, 5.0), (120.0, 120.0), (DAY, DAY), (10 * DAY, DAY), (float("inf"), DAY)]
)
def test_a_busy_receiver_may_ask_for_up_to_a_day(status: int, asked: float | None, delay: float) -> None:
    assert standing(status, asked, 1, 0.0).delay == delay


def test_only_a_busy_receiver_may_ask() -> None:
    assert standing(500, 120.0, 1, 0.0).delay == 5


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("Sun, 29 Nov 2026 12:02:00 GMT", 120.0),
        ("Sun, 29 Nov 2026 12:02:00 -0000", 120.0),
        ("Sun, 29 Nov 2026 13:02:00 +0100", 120.0),
        ("Sun, 29 Nov 2026 11:00:00 GMT", 0.0),
        ("9" * 5000, float("inf")),
        (None, None),
        ("", None),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("١٢", None),
        ("Sun, 99 Nov 2026 12:02:00 GMT", None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds


@given(st.text())
def test_any_retry_after_is_a_wait_or_nothing(header: str) -> None:
    assert (wait := retry_after(header, NOW)) is None or wait >= 0


@given(st.integers(-(10**9), 10**11))
def test_a_date_is_the_time_until_it(seconds: int) -> None:
    header = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert retry_after(header, NOW) == max(0, seconds)
