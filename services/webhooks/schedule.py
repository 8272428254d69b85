"""When a webhook is sent again.

Guarantee: at most ten attempts over some three days. Each comes up to a random fifth later than scheduled, so that many
deliveries to one receiver do not return all at once; a receiver that names a time is not asked again before it.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from services.vocabulary import DeliveryState

MINUTE, HOUR = 60.0, 3600.0
RETRIES = (5.0, 5 * MINUTE, 30 * MINUTE, *(hours * HOUR for hours in (2, 5, 10, 14, 20, 24)))  # after the one before
JITTER = 0.2
LONGEST_WAIT = 24 * HOUR  # the most that a receiver can ask for

GONE = 410
BUSY = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a delivery stands after an attempt. `delay` is the seconds until the next one, None when there is none."""

    state: DeliveryState
    delay: float | None = None


def standing(status: int | None, retry_after: float | None, number: int, jitter: float) -> Standing:
    """Where a delivery stands after its attempt `number` (from 1) was answered with `status`, or not at all (None).

    `retry_after` is what the receiver asked for, in seconds; `jitter` is random, in [0, 1).
    """
    if status is not None and 200 <= status < 300:
        return Standing(DeliveryState.DELIVERED)
    if status == GONE or number > len(RETRIES):
        return Standing(DeliveryState.FAILED)
    delay = RETRIES[number - 1] * (1 + JITTER * jitter)
    if status in BUSY and retry_after is not None:
        delay = max(delay, min(retry_after, LONGEST_WAIT))
    return Standing(DeliveryState.PENDING, delay)


def retry_after(header: str | None, now: datetime) -> float | None:
    """The seconds that a Retry-After header asks to wait (RFC 9110, 10.2.3); None when it says nothing sensible."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text) if len(text) < 10 else math.inf
    try:
        moment = parsedate_to_datetime(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (aware - now).total_seconds())
    except (ValueError, OverflowError):
        return None
