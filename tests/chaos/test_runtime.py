"""A runtime that breaks in each of its ways while it is attached to: nothing is lost, and no item pays for it.

A worker leaves a runtime that it did not launch as it is: it waits until that is well again.
"""

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from embedded.processes import Child
from tests.invariants import check_ended_job
from tests.parts import LONG_LEASE, Parts, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ITEMS = 200
AWAY, WELL, UNHEALTHY = '"runtime_away"', '"runtime_ready"', '"runtime_unhealthy"'
SLOTS = 16
SLOW = ("--service-time", "lognormal:0.2,0.5", "--slots", str(SLOTS))
SILENT = 5.0  # seconds of patience


def break_runtime(parts: Parts, fault: str, **order: Any) -> None:
    """Have the runtime break from now on."""
    httpx.post(f"{parts.runtime_url}/scripted/fault", json={"fault": fault, **order}).raise_for_status()


def mend_runtime(parts: Parts) -> None:
    """Have it answer again."""
    httpx.delete(f"{parts.runtime_url}/scripted/fault").raise_for_status()


def check_whole(parts: Parts, job_id: Any) -> None:
    """The job is whole, and no item was suspected of anything."""
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"], job["failed"]) == ("completed", ITEMS, 0)
    assert parts.rows("SELECT 1 FROM chunk WHERE part > 0") == []


def wait_for_another(worker: Child, event: str) -> Callable[[], None]:
    """A function that waits until the worker has logged `event` once more than by now."""
    seen = worker.log.read_text().count(event)
    return lambda: eventually(lambda: worker.log.read_text().count(event) > seen, f"the worker logs {event}")


@pytest.mark.parametrize("fault", ["garbage", "half_body", "unavailable"])
def test_broken_answers_in_mid_job(parts: Parts, fault: str) -> None:
    parts.settings |= LONG_LEASE
    parts.runtime(*SLOW)
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    for heard in (10, 80):
        parts.wait_until_heard(job_id, heard)
        away, well = wait_for_another(worker, AWAY), wait_for_another(worker, WELL)
        break_runtime(parts, fault)
        away()
        mend_runtime(parts)
        well()
    check_whole(parts, job_id)
    assert parts.rows("SELECT 1 FROM death") == []
    assert worker.ended() is None


def test_a_full_queue_within_a_stream_is_no_fault(parts: Parts) -> None:
    parts.settings |= LONG_LEASE
    parts.runtime(*SLOW)
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)
    break_runtime(parts, "stream_error", times=40)
    check_whole(parts, job_id)
    assert AWAY not in worker.log.read_text()


@pytest.mark.parametrize("fault", ["hang", "hang_healthy"])
def test_a_runtime_that_hangs_until_somebody_restarts_it(parts: Parts, fault: str) -> None:
    parts.settings |= {"RUNTIME_PATIENCE": str(SILENT), **LONG_LEASE}
    runtime = parts.runtime(*SLOW)
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)
    break_runtime(parts, fault)
    eventually(lambda: parts.rows("SELECT 1 FROM worker WHERE state = 'unhealthy'"), "the worker notices")
    runtime.stop(grace_seconds=0)
    parts.runtime(*SLOW)
    check_whole(parts, job_id)
    assert worker.ended() is None


def check_undoubted(parts: Parts, worker: Child) -> None:
    """The worker has taken its runtime for well all the time, and for one and the same."""
    assert worker.ended() is None
    assert AWAY not in worker.log.read_text()
    assert UNHEALTHY not in worker.log.read_text()
    assert parts.rows("SELECT count(*) AS epochs FROM runtime_epoch") == [{"epochs": 1}]


def test_a_slow_prefill_is_no_fault(parts: Parts) -> None:
    parts.settings |= {"RUNTIME_PATIENCE": str(SILENT), **LONG_LEASE}
    parts.runtime(*SLOW)
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)
    break_runtime(parts, "slow_prefill", seconds=12.0, times=SLOTS // 2)  # the other half of the slots go on
    check_whole(parts, job_id)
    check_undoubted(parts, worker)


def test_a_slow_prefill_in_every_slot_is_no_fault(parts: Parts) -> None:
    """A canary is sent and waits for longer than it may where nothing moves; but the tokens that are read do."""
    parts.settings |= {"RUNTIME_PATIENCE": str(SILENT), **LONG_LEASE}
    parts.runtime(*SLOW)
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)
    break_runtime(parts, "slow_prefill", seconds=4 * SILENT)

    def all_are_slow() -> bool:
        running = [call for call in parts.calls() if call["started"] and not call["finished"]]
        return sum(time.time() - call["started"] > SILENT / 2 for call in running) == SLOTS

    eventually(all_are_slow, "every slot is in a slow prefill")
    mend_runtime(parts)  # so that what comes next is slow for these alone

    def second_canary() -> dict[str, Any] | None:
        canaries = [call for call in parts.calls() if call["rid"].startswith("canary-")]
        return canaries[1] if len(canaries) > 1 and canaries[1]["finished"] else None

    canary = eventually(second_canary, "a second canary is answered")
    assert canary["finished"] - canary["received"] > SILENT
    assert canary["completion_tokens"] == 1  # it was answered, not given up
    check_whole(parts, job_id)
    check_undoubted(parts, worker)
