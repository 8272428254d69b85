"""An item at which its worker or its runtime dies, each time: it alone fails, with its evidence."""

import json
from typing import Any
from uuid import UUID

import pytest

from services.jobs.states import ENDED
from tests.factories import comparisons
from tests.invariants import check_ended_job
from tests.parts import PATIENCE, Parts, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ITEMS = 40  # two chunks
POISON = 7
DEADLY = "arsenic"


def items() -> list[dict[str, Any]]:
    made = comparisons(ITEMS)
    made[POISON]["context"][0]["content"] = f"What of {DEADLY}?"
    return made


def check_condemned(parts: Parts, job_id: UUID) -> None:
    """The poisoned item alone has failed, and whoever asks is told why."""
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"], job["failed"]) == ("completed_with_errors", ITEMS - 1, 1)
    failed = parts.rows("SELECT seq, error_code FROM verdict WHERE status = 'failed'")
    assert failed == [{"seq": POISON, "error_code": "poisoned"}]
    (told,) = {row["error_message"] for row in parts.rows("SELECT error_message FROM trace WHERE seq = 7")}
    assert "3 deaths" in told


def test_an_item_that_kills_its_worker(parts: Parts) -> None:
    parts.settings |= {"LEASE": "2"}
    parts.runtime()
    parts.maintenance()
    job_id = parts.queue(parts.tenant(), items())
    worker = parts.doomed_worker("--poison", DEADLY)

    def ended() -> bool:
        nonlocal worker
        if worker.ended() is not None:  # as whoever looks after it would start it again
            worker = parts.doomed_worker("--poison", DEADLY)
        return parts.job(job_id)["status"] in ENDED

    eventually(ended, "the job ends", 2 * PATIENCE)
    check_condemned(parts, job_id)


def test_an_item_that_kills_its_runtime(parts: Parts) -> None:
    rule = {"match": DEADLY, "fault": "die"}
    runtime = parts.runtime("--rule", json.dumps(rule))
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), items())

    def ended() -> bool:
        nonlocal runtime
        if runtime.ended() is not None:
            runtime = parts.runtime("--rule", json.dumps(rule))
        return parts.job(job_id)["status"] in ENDED

    eventually(ended, "the job ends", 2 * PATIENCE)
    check_condemned(parts, job_id)
    assert worker.ended() is None
