"""What callers say and hear about webhooks: a job's callback, and the body of an event.

Guarantee: a callback that validates holds a URL that can be sent to as it stands. An event's body is plain JSON text;
the caller's metadata stands in it exactly as sent.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from yarl import URL

from services.foundation.identifiers import shown
from services.foundation.jsontext import escaped
from services.vocabulary import EventType

LONGEST_URL = 2048


def parsed_url(url: str) -> URL:
    """A webhook's URL, to be sent to exactly as it is written. Raises ValueError with what is wrong with it.

    Where it leads is judged when it is sent to.
    """
    if len(url) > LONGEST_URL:
        raise ValueError(f"the URL is longer than {LONGEST_URL} characters")
    if " " in url or not url.isprintable():
        raise ValueError("the URL holds blanks or control characters")
    try:
        parts = URL(url, encoded=url.isascii())
        host, authority = parts.raw_host, parts.raw_authority
    except (ValueError, IndexError) as error:  # the latter for `http://[]@`
        raise ValueError(f"not a URL: {error}") from error
    if parts.scheme not in {"http", "https"}:
        raise ValueError("the URL must be http or https")
    if not host:
        raise ValueError("the URL has no host")
    if "@" in authority:
        raise ValueError("the URL must not hold credentials")
    return parts


def sound_url(url: str) -> str:
    """`url` itself, when nothing is wrong with it. Raises ValueError."""
    parsed_url(url)
    return url


class Callback(BaseModel):
    """Where a job tells its end: `events` it is told of (every end, unless said), and how much is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str, AfterValidator(sound_url)]
    events: tuple[EventType, ...] = Field(default=tuple(EventType), min_length=1)
    include: Literal["summary"] = "summary"


def job_event_payload(event: EventType, job: Mapping[Any, Any], public_url: str) -> str:
    """The JSON text that tells of a job's end: `{"type", "timestamp", "data"}` (Standard Webhooks).

    `job` is the ended job's row, `public_url` the API's address. `data.sequence` orders the events of one job, which
    may arrive in another order.
    """
    shown_id = shown("job", job["id"])
    ended = ("succeeded", "failed", "cancelled", "expired")
    data = escaped(
        {
            "job_id": shown_id,
            "status": job["status"],
            "sequence": job["sequence"],
            "counts": {"total": job["total"], "queued": 0, "running": 0, **{name: job[name] for name in ended}},
            "results_url": f"{public_url.rstrip('/')}/v1/jobs/{shown_id}/results",
        }
    )
    head = escaped({"type": event, "timestamp": rfc3339(job["ended_at"])})
    return f'{head[:-1]},"data":{data[:-1]},"metadata":{job["metadata_json"]}}}}}'


def rfc3339(moment: datetime) -> str:
    """A moment in UTC, to the millisecond (RFC 3339)."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
