"""A cancel and a deadline in the middle of a job: the runtime falls silent at once, what was heard stays."""

import json
import time
from collections import Counter
from collections.abc import Callable
from uuid import UUID

import pytest
from sqlalchemy import text

from services.foundation.database import transaction
from services.jobs.cancel import cancel
from services.jobs.results import results_page
from tests.factories import comparisons
from tests.invariants import check_ended_job
from tests.parts import LONG_LEASE, Parts, eventually

pytestmark = pytest.mark.chaos

ITEMS = 400
QUICK = 8  # items that are answered at once
SILENT = 10.0  # seconds within which a runtime must have fallen silent
FOR_EVER = ("--service-time", "lognormal:600,0.01", "--slots", "1000")  # room for every call: no quick one waits


@pytest.fixture
def job_of_hundreds(parts: Parts) -> Callable[..., tuple[UUID, UUID]]:
    """Queues a job whose first items are answered, and waits until hundreds of calls of the others run."""

    def queue(**request: object) -> tuple[UUID, UUID]:
        parts.settings |= LONG_LEASE  # one that lapsed on a busy machine would have all of it asked anew, in any order
        parts.runtime(*FOR_EVER)
        parts.script({"match": "the first answer", "latency_s": 0}, {"match": "quick", "latency_s": 0})
        parts.maintenance()
        parts.worker()
        parts.wait_until_ready()
        items = comparisons(ITEMS)
        for item in items[:QUICK]:
            item["context"][0]["content"] += " quick"
        job_id = parts.queue(tenant := parts.tenant(), items, **request)
        parts.wait_until_heard(job_id, QUICK)
        eventually(lambda: parts.running_calls() >= 300, "hundreds of calls run")
        return tenant, job_id

    return queue


def check_silence(parts: Parts) -> None:
    """The runtime falls silent and stays so: nobody asks for what is not wanted any more."""
    eventually(lambda: parts.running_calls() == 0, "no call is left on the runtime", SILENT)
    asked = len(parts.calls())
    time.sleep(1.5)
    assert (parts.running_calls(), len(parts.calls())) == (0, asked)


def check_results(parts: Parts, tenant: UUID, job_id: UUID, rest: str) -> None:
    """Every item has its line: those that were heard their verdict, the others how they ended."""
    with transaction(parts.engine) as connection:
        lines = results_page(connection, tenant, job_id, ITEMS).lines
    statuses = Counter(json.loads(line)["status"] for line in lines)
    assert statuses == {"succeeded": QUICK, rest: ITEMS - QUICK}


def test_cancelling_hundreds_of_running_calls(parts: Parts, job_of_hundreds: Callable[..., tuple[UUID, UUID]]) -> None:
    tenant, job_id = job_of_hundreds()
    with transaction(parts.engine) as connection:
        cancel(connection, tenant, job_id, "http://assizes.test")
    check_silence(parts)
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"], job["cancelled"]) == ("cancelled", QUICK, ITEMS - QUICK)
    check_results(parts, tenant, job_id, "cancelled")


@pytest.mark.slow
def test_a_deadline_in_the_middle_of_a_job(parts: Parts, job_of_hundreds: Callable[..., tuple[UUID, UUID]]) -> None:
    tenant, job_id = job_of_hundreds()
    with transaction(parts.engine) as connection:
        connection.execute(text("UPDATE job SET deadline = now() + interval '1 second'"))
    parts.wait_until_ended(job_id)
    check_silence(parts)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"], job["expired"]) == ("expired", QUICK, ITEMS - QUICK)
    check_results(parts, tenant, job_id, "expired")
