"""From an ended job to a receiver that believes it, whatever breaks on the way."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from standardwebhooks import Webhook

from services.foundation.database import transaction
from services.foundation.identifiers import shown
from services.vocabulary import EventType
from services.webhooks import queries
from services.webhooks.guard import allowed_networks, guarded_session
from services.webhooks.sign import new_secret
from tests.fakes.receiver import Receiver, answering
from workers.maintenance.courier import Courier
from workers.maintenance.metrics import MaintenanceMetrics

PATIENCE = 60.0  # seconds until a condition that never comes fails a test

# A courier in a process of its own, so that it can be killed between sending and marking.
COURIER = """
import asyncio, sys
from services.foundation.database import make_engine
from services.webhooks.guard import allowed_networks, guarded_session
from workers.maintenance.courier import Courier
from workers.maintenance.metrics import MaintenanceMetrics

async def carry():
    async with guarded_session(allowed_networks(["127.0.0.0/8"]), "Assizes/test") as session:
        async with Courier(make_engine(sys.argv[1], "courier"), session, MaintenanceMetrics()) as courier:
            await courier.run()

asyncio.run(carry())
"""


@asynccontextmanager
async def courier_of(engine: Engine, *allow: str, **limits: Any) -> AsyncIterator[Courier]:
    """A courier that may reach this machine; its end waits for its attempts."""
    networks = allowed_networks(allow or ("127.0.0.0/8",))
    async with (
        guarded_session(networks, "Assizes/test") as session,
        Courier(engine, session, MaintenanceMetrics(), **limits) as courier,
    ):
        yield courier


async def one_round(engine: Engine, *allow: str, **limits: Any) -> None:
    """One run of a courier, to the end of its attempts."""
    async with courier_of(engine, *allow, **limits) as courier:
        await courier.run()


async def until(condition: Callable[[], bool], run: Callable[[], Awaitable[None]] | None = None) -> None:
    """Return when `condition` holds, calling `run` between looks."""
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(condition):
            if run:
                await run()
            await asyncio.sleep(0.01)


def test_an_ended_job_is_told_once_and_the_public_library_verifies_it(docket: Any) -> None:
    async def deliver() -> Receiver:
        async with Receiver(answering(200, body=b"thanks")) as receiver:
            docket.end_job(receiver.url)
            await one_round(docket.engine)
            await one_round(docket.engine)
            return receiver

    [request] = asyncio.run(deliver()).received
    [delivery] = docket.deliveries()
    told = Webhook(docket.secret).verify(request.body, request.headers)
    assert told["type"] == "job.completed"
    assert told["data"]["job_id"] == shown("job", delivery["job_id"])
    assert request.headers["webhook-id"] == shown("msg", delivery["id"])
    assert (delivery["state"], delivery["attempts"]) == ("delivered", 1)
    assert delivery["ended_at"] is not None
    [attempt] = docket.attempts()
    assert (attempt["number"], attempt["status"], attempt["body"], attempt["error"]) == (1, 200, "thanks", None)


def test_a_failure_is_tried_again_under_the_same_id_with_a_new_time_and_signature(docket: Any) -> None:
    async def deliver() -> Receiver:
        async with Receiver(answering(500, 200)) as receiver:
            docket.end_job(receiver.url)
            await one_round(docket.engine)
            [waiting] = docket.deliveries()
            assert (waiting["state"], waiting["attempts"], waiting["ended_at"]) == ("pending", 1, None)
            assert waiting["wait"] <= 6
            docket.let_time_pass()
            await one_round(docket.engine)
            return receiver

    first, second = asyncio.run(deliver()).received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    for request in (first, second):
        Webhook(docket.secret).verify(request.body, request.headers)
    assert [attempt["status"] for attempt in docket.attempts()] == [500, 200]
    assert docket.states() == ["delivered"]


def test_what_waits_for_its_time_is_left_alone(docket: Any) -> None:
    async def deliver() -> Receiver:
        async with Receiver(answering(500)) as receiver:
            docket.end_job(receiver.url)
            await one_round(docket.engine)
            with transaction(docket.engine) as connection:
                connection.execute(text("UPDATE delivery SET next_at = now() + interval '1 hour'"))
            await one_round(docket.engine)
            return receiver

    assert len(asyncio.run(deliver()).received) == 1


def test_a_receiver_that_never_answers_well_is_given_up_after_ten_attempts(docket: Any) -> None:
    async def deliver() -> Receiver:
        async with Receiver(answering(500)) as receiver:
            docket.end_job(receiver.url)
            for _ in range(12):
                await one_round(docket.engine)
                docket.let_time_pass()
            return receiver

    received = asyncio.run(deliver()).received
    assert len(received) == 10
    assert len({request.headers["webhook-id"] for request in received}) == 1
    assert [attempt["number"] for attempt in docket.attempts()] == list(range(1, 11))
    [delivery] = docket.deliveries()
    assert (delivery["state"], delivery["ended_at"] is None) == ("failed", False)


def test_gone_is_given_up_at_once(docket: Any) -> None:
    async def deliver() -> Receiver:
        async with Receiver(answering(410)) as receiver:
            docket.end_job(receiver.url)
            await one_round(docket.engine)
            docket.let_time_pass()
            await one_round(docket.engine)
            return receiver

    assert len(asyncio.run(deliver()).received) == 1
    assert docket.states() == ["failed"]


@pytest.mark.parametrize(("status", "waits"), [(429, True), (503, True), (500, False)])
def test_a_busy_receiver_is_left_alone_as_long_as_it_asks(docket: Any, status: int, waits: bool) -> None:
    async def deliver() -> None:
        async with Receiver(answering(status, headers="Retry-After: 7200\r\n")) as receiver:
            docket.end_job(receiver.url)
            await one_round(docket.engine)

    asyncio.run(deliver())
    [delivery] = docket.deliveries()
    assert delivery["state"] == "pending"
    assert (3600 < delivery["wait"] <= 7200) is waits


def test_a_redirect_into_the_machine_is_a_failure_and_not_followed(docket: Any) -> None:
    async def deliver() -> int:
        async with (
            Receiver(answering(200)) as inner,
            Receiver(answering(307, headers=f"Location: {inner.url}\r\n"), "127.0.0.2") as receiver,
        ):
            docket.end_job(receiver.url)
            await one_round(docket.engine, "127.0.0.2")
            return inner.connections

    assert asyncio.run(deliver()) == 0
    assert [attempt["status"] for attempt in docket.attempts()] == [307]
    assert docket.states() == ["pending"]


def test_a_private_target_gets_nothing_and_the_attempt_says_why(docket: Any) -> None:
    async def deliver() -> int:
        async with Receiver(answering(200)) as receiver:
            docket.end_job(receiver.url)
            await one_round(docket.engine, "10.0.0.0/8")
            return receiver.connections

    assert asyncio.run(deliver()) == 0
    [attempt] = docket.attempts()
    assert attempt["status"] is None
    assert attempt["error"].startswith("refused: ")


def test_only_the_events_asked_for_are_told_and_only_to_those_who_ask(docket: Any) -> None:
    async def deliver() -> Receiver:
        async with Receiver(answering(200)) as receiver:
            docket.end_job(None)
            docket.end_job(receiver.url, EventType.JOB_FAILED, events=["job.completed", "job.expired"])
            docket.end_job(receiver.url, EventType.JOB_CANCELLED)
            docket.end_job(receiver.url, EventType.JOB_EXPIRED, events=["job.expired"])
            await one_round(docket.engine)
            return receiver

    received = asyncio.run(deliver()).received
    assert sorted(json.loads(request.body)["type"] for request in received) == ["job.cancelled", "job.expired"]
    assert docket.rows("SELECT count(*) AS open FROM event WHERE fanned_at IS NULL") == [{"open": 0}]


def test_each_tenants_webhooks_are_signed_with_its_own_secret(add_tenant: Callable[[str], Any]) -> None:
    one, other = add_tenant("one"), add_tenant("other")

    async def deliver() -> dict[str, Any]:
        async with Receiver(answering(200)) as receiver:
            one.end_job(receiver.url)
            other.end_job(receiver.url)
            await one_round(one.engine)
            return {json.loads(request.body)["data"]["job_id"]: request for request in receiver.received}

    received = asyncio.run(deliver())
    owners: dict[UUID, UUID] = {row["job_id"]: row["tenant_id"] for row in one.deliveries()}
    for job_id, tenant_id in owners.items():
        request = received[shown("job", job_id)]
        Webhook({one.tenant_id: one, other.tenant_id: other}[tenant_id].secret).verify(request.body, request.headers)


def test_a_secret_replaced_between_attempts_signs_the_next_one(docket: Any) -> None:
    fresh = new_secret()

    async def deliver() -> Receiver:
        async with Receiver(answering(503, 200)) as receiver:
            docket.end_job(receiver.url)
            await one_round(docket.engine)
            with transaction(docket.engine) as connection:
                connection.execute(text("UPDATE tenant SET webhook_secret = :secret"), {"secret": fresh})
            docket.let_time_pass()
            await one_round(docket.engine)
            return receiver

    first, second = asyncio.run(deliver()).received
    Webhook(docket.secret).verify(first.body, first.headers)
    Webhook(fresh).verify(second.body, second.headers)


def test_a_courier_killed_between_sending_and_marking_is_made_good_under_the_same_id(
    docket: Any, database_url: str
) -> None:
    async def deliver() -> Receiver:
        killed = asyncio.Event()

        async def kill_then_answer(number: int, writer: asyncio.StreamWriter) -> None:
            if number == 1:
                os.kill(process.pid, signal.SIGKILL)
                killed.set()
            await answering(200)(number, writer)

        async with Receiver(kill_then_answer) as receiver:
            docket.end_job(receiver.url)
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", COURIER, database_url)
            async with asyncio.timeout(PATIENCE):
                await killed.wait()
                assert await process.wait() == -signal.SIGKILL
            [delivery] = docket.deliveries()
            assert (delivery["state"], delivery["attempts"]) == ("pending", 1)
            assert delivery["hold"] >= 30
            assert docket.attempts() == []
            docket.let_time_pass()
            await one_round(docket.engine)
            return receiver

    first, second = asyncio.run(deliver()).received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert [attempt["number"] for attempt in docket.attempts()] == [2]
    assert docket.states() == ["delivered"]


def test_couriers_at_once_deliver_each_webhook_once(docket: Any) -> None:
    jobs = 60

    async def deliver() -> Receiver:
        async with Receiver(answering(200)) as receiver:
            for _ in range(jobs):
                docket.end_job(receiver.url)
            async with (
                courier_of(docket.engine) as one,
                courier_of(docket.engine) as two,
                courier_of(docket.engine) as three,
            ):

                async def round_of_all() -> None:
                    await asyncio.gather(one.run(), two.run(), three.run())

                await until(lambda: docket.states() == ["delivered"] * jobs, round_of_all)
            return receiver

    received = asyncio.run(deliver()).received
    assert len(received) == jobs
    assert set(Counter(request.headers["webhook-id"] for request in received).values()) == {1}
    assert len({json.loads(request.body)["data"]["job_id"] for request in received}) == jobs


def test_claims_at_once_take_each_delivery_once(docket: Any) -> None:
    jobs, claimers = 240, 8
    for _ in range(jobs):
        docket.end_job("http://127.0.0.1:9/")
    with transaction(docket.engine) as connection:
        assert queries.fan_out(connection, jobs) == jobs

    def claim_all(_: int) -> list[UUID]:
        taken: list[UUID] = []
        for _ in range(jobs):
            with transaction(docket.engine) as connection:
                taken += [parcel.id for parcel in queries.claim(connection, 2, jobs, {}, hold=3600)]
        return taken

    with ThreadPoolExecutor(claimers) as pool:
        taken = [delivery for part in pool.map(claim_all, range(claimers)) for delivery in part]
    assert len(taken) == len(set(taken)) == jobs


class Held:
    """Holds every answer back until it is let go."""

    def __init__(self, *statuses: int) -> None:
        self._answer = answering(*statuses)
        self._gates: dict[int, asyncio.Event] = {}

    def _gate(self, number: int) -> asyncio.Event:
        return self._gates.setdefault(number, asyncio.Event())

    def let_go(self, *numbers: int) -> None:
        """Answer these requests, those to come too."""
        for number in numbers:
            self._gate(number).set()

    async def __call__(self, number: int, writer: asyncio.StreamWriter) -> None:
        await self._gate(number).wait()
        await self._answer(number, writer)


def test_a_host_that_hangs_has_its_share_and_no_more(docket: Any) -> None:
    async def deliver() -> int:
        held = Held(200)
        async with Receiver(held) as slow:
            for _ in range(6):
                docket.end_job(slow.url)
            async with courier_of(docket.engine, per_host=2, deadline=PATIENCE) as courier:
                for _ in range(3):
                    await courier.run()
                await until(lambda: len(slow.received) == 2)
                held.let_go(*range(1, 7))
                await until(lambda: docket.states() == ["delivered"] * 6, courier.run)
            return slow.most_open

    assert asyncio.run(deliver()) == 2


def test_a_host_that_hangs_holds_up_nobody_else(docket: Any) -> None:
    async def deliver() -> None:
        held = Held(200)
        async with Receiver(held) as slow, Receiver(answering(200)) as quick:
            for _ in range(6):
                docket.end_job(slow.url)
            docket.end_job(quick.url)
            async with courier_of(docket.engine, at_once=2, per_host=2, deadline=PATIENCE) as courier:
                await courier.run()
                await until(lambda: docket.states().count("delivered") == 1)
                docket.end_job(quick.url)
                await until(lambda: docket.states().count("delivered") == 2, courier.run)
                assert len(quick.received) == 2
                held.let_go(*range(1, 7))
                await until(lambda: docket.states() == ["delivered"] * 8, courier.run)

    asyncio.run(deliver())


@pytest.mark.parametrize(
    ("first", "second", "state"),
    [
        (200, 500, "delivered"),
        (200, 410, "delivered"),
        (500, 200, "delivered"),
        (410, 200, "delivered"),
        (410, 500, "pending"),
        (500, 410, "failed"),
    ],
)
def test_two_attempts_at_once_end_as_the_later_one_says_unless_one_was_a_delivery(
    docket: Any, first: int, second: int, state: str
) -> None:
    async def deliver() -> Receiver:
        held = Held(first, second)
        async with Receiver(held) as receiver:
            docket.end_job(receiver.url)
            async with (
                courier_of(docket.engine, deadline=PATIENCE) as stalled,
                courier_of(docket.engine, deadline=PATIENCE) as other,
            ):
                await stalled.run()
                await until(lambda: len(receiver.received) == 1)
                docket.let_time_pass()  # as if the first attempt were taken for lost
                await other.run()
                await until(lambda: len(receiver.received) == 2)
                held.let_go(1)
                await until(lambda: len(docket.attempts()) == 1)
                held.let_go(2)
            return receiver

    received = asyncio.run(deliver()).received
    assert len({request.headers["webhook-id"] for request in received}) == 1
    assert [attempt["status"] for attempt in docket.attempts()] == [first, second]
    assert docket.states() == [state]


def test_a_deleted_jobs_events_are_told_to_nobody(docket: Any) -> None:
    job_id = docket.end_job("http://127.0.0.1:9/")
    with transaction(docket.engine) as connection:
        connection.execute(text("DELETE FROM job WHERE id = :id"), {"id": job_id})
    asyncio.run(one_round(docket.engine))
    assert docket.deliveries() == []
    assert docket.rows("SELECT count(*) AS open FROM event WHERE fanned_at IS NULL") == [{"open": 0}]


def test_a_database_that_is_away_when_an_attempt_ends_is_said_and_costs_one_more_attempt(docket: Any) -> None:
    async def deliver() -> Receiver:
        async def lock_out(number: int, writer: asyncio.StreamWriter) -> None:
            if number == 1:
                with transaction(docket.engine) as connection:
                    connection.execute(text("ALTER TABLE delivery_attempt RENAME TO away"))
            await answering(200)(number, writer)

        async with Receiver(lock_out) as receiver:
            docket.end_job(receiver.url)
            with pytest.raises(ExceptionGroup, match="could not be marked"):
                await one_round(docket.engine)
            with transaction(docket.engine) as connection:
                connection.execute(text("ALTER TABLE away RENAME TO delivery_attempt"))
            docket.let_time_pass()
            await one_round(docket.engine)
            return receiver

    assert len(asyncio.run(deliver()).received) == 2
    assert docket.states() == ["delivered"]
