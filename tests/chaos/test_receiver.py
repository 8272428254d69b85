"""Receivers of every bad kind and a good one, for one maintenance process: the good one hears of every end at once."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from uuid import UUID

import pytest

from services.webhooks.deliver import DEADLINE
from tests.fakes.receiver import Answer, Receiver, answering
from tests.integration.webhooks.conftest import Docket
from tests.invariants import check_told
from tests.parts import Parts, eventually, resident

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

GOOD = 30  # jobs that a sound receiver hears of
PROMPT = 10.0  # seconds within which it does
SPARE = 64.0  # MiB that a maintenance process may grow by, whatever a receiver answers


async def drip(_: int, writer: asyncio.StreamWriter) -> None:
    """A byte a second, without end."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-Drop: 1\r\n")
        await writer.drain()
        await asyncio.sleep(1)


async def flood(_: int, writer: asyncio.StreamWriter) -> None:
    """A gigabyte."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
    for _ in range(1024):
        writer.write(bytes(1 << 20))
        await writer.drain()


@contextmanager
def receiving(answer: Answer) -> Iterator[Receiver]:
    """A receiver in a thread of its own."""
    receiver = Receiver(answer)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(receiver.__aenter__(), loop).result()
        try:
            yield receiver
        finally:
            asyncio.run_coroutine_threadsafe(receiver.__aexit__(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_bad_receivers_hold_up_no_other(parts: Parts, free_port: Callable[[], int]) -> None:
    docket = Docket(parts.engine, parts.tenant(), "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
    maintenance = parts.maintenance()
    with ExitStack() as stack:

        def told(*statuses: int, headers: str = "") -> Receiver:
            return stack.enter_context(receiving(answering(*statuses, headers=headers)))

        good, trap = told(200), told(200)
        slow, huge = stack.enter_context(receiving(drip)), stack.enter_context(receiving(flood))
        urls = {
            "down": f"http://127.0.0.1:{free_port()}/",
            "slow": slow.url,
            "huge": huge.url,
            "redirecting": told(302, headers=f"Location: {trap.url}\r\n").url,
            "gone": told(410).url,
            "busy": told(429, headers="Retry-After: 600\r\n").url,
            "private": "http://10.0.0.1/",
            "private by name": "http://localhost.localdomain:1/",
        }
        bad = {name: docket.end_job(url) for name, url in urls.items()}
        eventually(lambda: slow.open and huge.connections, "the slow ones are being sent to")
        before = resident(maintenance.pid)
        jobs = [docket.end_job(good.url) for _ in range(GOOD)]
        eventually(lambda: len(good.received) == GOOD, "the good receiver hears of every end", PROMPT)
        for job_id in [*jobs, bad["huge"]]:
            eventually(lambda job_id=job_id: standing(docket, job_id)["state"] == "delivered", "it is marked")
            check_told(parts.engine, job_id)
        for name, job_id in bad.items():
            eventually(lambda job_id=job_id: standing(docket, job_id)["tries"], f"{name} is tried", DEADLINE + PROMPT)
        found = {name: standing(docket, job_id) for name, job_id in bad.items()}
        assert {name: (row["state"], row["status"]) for name, row in found.items()} == {
            "down": ("pending", None),
            "slow": ("pending", None),
            "huge": ("delivered", 200),
            "redirecting": ("pending", 302),
            "gone": ("failed", 410),
            "busy": ("pending", 429),
            "private": ("pending", None),
            "private by name": ("pending", None),
        }
        assert found["busy"]["wait"] > 500
        assert "refused" in found["private"]["error"]
        assert trap.received == []
        assert resident(maintenance.pid) < before + SPARE
    assert maintenance.ended() is None


def standing(docket: Docket, job_id: UUID) -> dict[str, object]:
    """Where the one delivery of a job stands, with its first attempt."""
    query = """
        SELECT state, attempts AS tries, attempt.status, attempt.error, extract(epoch FROM next_at - now()) AS wait
        FROM delivery JOIN delivery_attempt AS attempt ON attempt.delivery_id = delivery.id AND attempt.number = 1
        WHERE job_id = :job_id
    """
    rows = docket.rows(query, job_id=job_id)
    return dict(rows[0]) if rows else {"state": "pending", "tries": 0}


def test_a_receiver_that_was_down_is_told_when_it_is_back(parts: Parts, free_port: Callable[[], int]) -> None:
    docket = Docket(parts.engine, parts.tenant(), "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
    parts.maintenance()
    with receiving(answering(503, 503, 200)) as receiver:
        job_id = docket.end_job(receiver.url)
        for attempts in (1, 2):
            eventually(lambda n=attempts: len(receiver.received) == n, "it is tried")
            eventually(lambda n=attempts: len(docket.attempts()) == n, "it is marked")
            docket.let_time_pass()
        eventually(lambda: docket.states() == ["delivered"], "it is told")
        check_told(parts.engine, job_id)
        assert len({request.headers["webhook-id"] for request in receiver.received}) == 1
