"""No webhook leads to a job that was deleted, unless it had left before."""

import asyncio
from typing import Any
from uuid import UUID

from services.foundation.database import transaction
from services.jobs.delete import delete
from services.webhooks import queries
from tests.fakes.receiver import Receiver, answering
from tests.integration.webhooks.test_courier import Held, courier_of, one_round, until


def delete_job(docket: Any, job_id: UUID) -> None:
    with transaction(docket.engine) as connection:
        delete(connection, docket.tenant_id, job_id)


def left(docket: Any) -> list[int]:
    """How many events, deliveries and attempts there are."""
    tables = ("event", "delivery", "delivery_attempt")
    return [docket.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"] for table in tables]


def test_what_was_not_told_yet_is_told_no_more(docket: Any) -> None:
    async def deliver() -> Receiver:
        async with Receiver(answering(200)) as receiver:
            delete_job(docket, docket.end_job(receiver.url))
            kept = docket.end_job(receiver.url)
            await one_round(docket.engine)
            assert [row["job_id"] for row in docket.deliveries()] == [kept]
            return receiver

    assert len(asyncio.run(deliver()).received) == 1
    assert left(docket) == [1, 1, 1]


def test_what_failed_before_is_not_tried_again(docket: Any) -> None:
    async def deliver() -> Receiver:
        async with Receiver(answering(500)) as receiver:
            job_id = docket.end_job(receiver.url)
            await one_round(docket.engine)
            assert left(docket) == [1, 1, 1]
            delete_job(docket, job_id)
            docket.let_time_pass()
            await one_round(docket.engine)
            return receiver

    assert len(asyncio.run(deliver()).received) == 1
    assert left(docket) == [0, 0, 0]


def test_an_attempt_under_way_comes_to_an_end_and_leaves_nothing(docket: Any) -> None:
    async def deliver() -> None:
        held = Held(200)
        async with Receiver(held) as receiver:
            job_id = docket.end_job(receiver.url)
            async with courier_of(docket.engine) as courier:
                await courier.run()
                await until(lambda: len(receiver.received) == 1)
                delete_job(docket, job_id)
                held.let_go(1)

    asyncio.run(deliver())
    assert left(docket) == [0, 0, 0]


def test_an_event_that_is_being_fanned_out_goes_with_its_delivery(docket: Any) -> None:
    job_id = docket.end_job("http://127.0.0.1:9/")

    async def deliver() -> None:
        with transaction(docket.engine) as connection:
            assert queries.fan_out(connection, 10) == 1
            deleting = asyncio.create_task(asyncio.to_thread(delete_job, docket, job_id))
            waiting = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            await until(lambda: docket.rows(waiting)[0]["n"] == 1)
        await deleting

    asyncio.run(deliver())
    assert left(docket) == [0, 0, 0]
