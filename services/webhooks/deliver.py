"""One attempt to deliver a webhook: sign, send, and say what came of it.

Guarantee: one POST, never redirected, under one deadline that covers the name, the connection, the request and as much
of the answer as is kept. Whatever a receiver does becomes an `Attempt`; nothing of it is raised.
"""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from aiohttp import ClientError, ClientSession, StreamReader

from services.contract.webhooks import parsed_url
from services.foundation.identifiers import shown
from services.foundation.jsontext import UNSTORABLE
from services.webhooks.guard import TargetRefused
from services.webhooks.schedule import retry_after
from services.webhooks.sign import signed_headers

DEADLINE = 15.0
KEPT = 1024


@dataclass(frozen=True, slots=True)
class Parcel:
    """A delivery that is to be attempted now, for the `number`th time. `host` is what a slow receiver is known by."""

    id: UUID
    job_id: UUID
    number: int
    host: str
    url: str = field(repr=False)
    body: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one POST. Either `status` and `body` (the first kilobyte) are there, or `error` says why not.

    `retry_after` is in seconds.
    """

    started_at: datetime
    latency_ms: float
    status: int | None = None
    body: str | None = None
    retry_after: float | None = None
    error: str | None = None


async def deliver(session: ClientSession, parcel: Parcel, deadline: float = DEADLINE) -> Attempt:
    """POST `parcel` once. `session` is `guard.guarded_session`; `deadline` is in seconds."""
    started_at = datetime.now(UTC)
    began = time.perf_counter()

    def elapsed_ms() -> float:
        return (time.perf_counter() - began) * 1000

    def unanswered(reason: str) -> Attempt:
        return Attempt(started_at, elapsed_ms(), error=storable(reason[:KEPT]))

    headers = signed_headers(shown("msg", parcel.id), started_at, parcel.body, parcel.secrets)
    headers["Content-Type"] = "application/json"
    try:
        url = parsed_url(parcel.url)
    except ValueError as error:
        return unanswered(f"refused: {error}")
    try:
        async with (
            asyncio.timeout(deadline),
            session.post(url, data=parcel.body.encode(), headers=headers, allow_redirects=False) as response,
        ):
            body = storable((await first_kilobyte(response.content)).decode(errors="replace"))
            wait = retry_after(response.headers.get("Retry-After"), datetime.now(UTC))
            return Attempt(started_at, elapsed_ms(), status=response.status, body=body, retry_after=wait)
    except TargetRefused as error:
        return unanswered(f"refused: {error.message}")
    except TimeoutError:
        return unanswered(f"no complete answer within {deadline:g} s")
    except (ClientError, OSError) as error:
        return unanswered(f"{type(error).__name__}: {error}")


def storable(text: str) -> str:
    """`text` without what the database cannot hold."""
    return UNSTORABLE.sub("\ufffd", text)


async def first_kilobyte(content: StreamReader) -> bytes:
    """The first `KEPT` bytes of an answer, or all of a shorter one. The rest is never read."""
    try:
        return await content.readexactly(KEPT)
    except asyncio.IncompleteReadError as short:
        return short.partial
