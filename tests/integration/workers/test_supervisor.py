"""A worker whose runtime breaks, in every way that servers are known to: it recovers by itself, or says that it cannot.

The runtime that it launches is the scripted one.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from embedded.processes import Child
from services.foundation.database import transaction
from services.jobs.roster import roster
from tests.factories import MODEL
from tests.fakes.launchable import starts
from tests.invariants import check_ended_job
from tests.parts import Parts, eventually
from tests.processes import alive, wait_until_gone

ITEMS = 200
SLOW = ("--service-time", "lognormal:0.2,0.1", "--slots", "8")
LEFT_TO_CHAOS = (pytest.mark.chaos, pytest.mark.slow)
QUICK = ("garbage",)  # the others are left to make chaos
BREAKAGE = 3.0  # seconds of patience: much longer than a call takes

Start = dict[str, Any]


class Launching:
    """A worker that launches its runtime."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.logs = parts.folder / "logs"
        parts.settings |= {"RUNTIME_LOGS": str(self.logs), "RUNTIME_PATIENCE": str(BREAKAGE)}

    def worker(self, *scripted: str, before: str = "") -> Child:
        """Start it. `before` is run by each start of the runtime."""
        self.parts.enlist_launched(*scripted, before=before)
        return self.parts.worker()

    def wait_for_start(self, number: int = 1) -> Start:
        """Wait for the runtime's start of that number, from 1, and have the parts speak to it."""
        start: Start = eventually(lambda: starts(self.logs)[number - 1 : number], f"start {number}")[0]
        self.parts.port = start["port"]
        return start

    def wait_until_ready(self, number: int = 1) -> Start:
        """Wait until the worker has opened its epoch of that number, from 1, and is ready."""
        epochs = "SELECT count(*) AS n FROM runtime_epoch"
        eventually(lambda: self.parts.rows(epochs)[0]["n"] == number, f"epoch {number} is opened")
        eventually(lambda: self.state() == "ready", "the worker is ready")
        return self.wait_for_start(number)

    def state(self) -> str:
        """The state of the worker that came last."""
        return str(self.parts.rows("SELECT state FROM worker ORDER BY started_at DESC LIMIT 1")[0]["state"])

    def health(self) -> str:
        """What the service says of the model."""
        with transaction(self.parts.engine) as connection:
            return str(roster(connection, self.parts.fleet)[0].health)


@pytest.fixture
def launching(parts: Parts) -> Launching:
    """A worker that launches its runtime; not started yet."""
    return Launching(parts)


def fault(kind: str) -> Callable[[Start], object]:
    """A way to break a runtime: a fault in its script."""

    def strike(start: Start) -> object:
        url = f"http://127.0.0.1:{start['port']}/scripted/fault"
        return httpx.post(url, json={"fault": kind}).raise_for_status()

    return strike


def sent(number: signal.Signals) -> Callable[[Start], object]:
    """A way to break a runtime: a signal."""
    return lambda start: os.kill(start["pid"], number)


@pytest.mark.parametrize(
    "strike",
    [
        pytest.param(sent(signal.SIGKILL), id="killed"),
        pytest.param(sent(signal.SIGSTOP), id="stopped", marks=LEFT_TO_CHAOS),
        *(
            pytest.param(fault(kind), id=kind, marks=() if kind in QUICK else LEFT_TO_CHAOS)
            for kind in ("hang_healthy", "garbage", "half_body", "unavailable", "stream_error")
        ),
    ],
)
def test_a_runtime_that_breaks_is_started_anew(launching: Launching, strike: Callable[[Start], object]) -> None:
    parts = launching.parts
    parts.maintenance()
    launching.worker(*SLOW)
    first = launching.wait_until_ready()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 10)
    strike(first)
    second = launching.wait_until_ready(2)
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)
    assert not alive(first["pid"])
    assert alive(second["pid"])
    epochs = parts.rows("SELECT id, ended_at IS NULL AS open, launch_flags FROM runtime_epoch ORDER BY started_at")
    assert [epoch["open"] for epoch in epochs] == [False, True]
    assert str(second["port"]) in epochs[1]["launch_flags"]
    heard_in = {row["epoch_id"] for row in parts.rows("SELECT DISTINCT epoch_id FROM trace")}
    assert heard_in == {epoch["id"] for epoch in epochs}


def test_a_slow_prefill_is_no_reason_to_restart(launching: Launching) -> None:
    parts = launching.parts
    parts.maintenance()
    launching.worker("--slots", "4")
    first = launching.wait_until_ready()
    slow = {"fault": "slow_prefill", "seconds": 4 * BREAKAGE}
    httpx.post(f"http://127.0.0.1:{first['port']}/scripted/fault", json=slow).raise_for_status()
    job_id = parts.queue(parts.tenant(), 2)
    parts.wait_until_ended(job_id)
    assert check_ended_job(parts.engine, job_id)["succeeded"] == 2
    canaries = [call for call in parts.calls() if call["rid"].startswith("canary")]
    assert len(canaries) > 1  # it was asked whether it is hung
    assert len(starts(launching.logs)) == 1
    assert len(parts.rows("SELECT 1 FROM runtime_epoch")) == 1


def test_a_runtime_that_cannot_be_started_is_defunct_in_the_end(launching: Launching) -> None:
    launching.parts.settings["RUNTIME_FAILURES"] = "3"
    worker = launching.worker(before="print('no such weights', flush=True); sys.exit(7)")
    eventually(worker.ended, "the worker gives up")
    assert worker.popen.returncode == 3
    assert len(starts(launching.logs)) == 3
    assert (launching.state(), launching.health()) == ("defunct", "defunct")
    (log,) = launching.logs.glob(f"{MODEL}-*.log")
    assert log.read_text().count("no such weights") == 3
    said = worker.log.read_text()
    assert str(log) in said
    assert "no such weights" not in said
    assert "Unclosed" not in said


def test_one_that_starts_at_the_second_try_is_used(launching: Launching) -> None:
    parts = launching.parts
    parts.maintenance()
    launching.worker(before="if starts() == 1: sys.exit(7)")
    job_id = parts.queue(parts.tenant(), 2)
    parts.wait_until_ended(job_id)
    assert check_ended_job(parts.engine, job_id)["succeeded"] == 2
    assert len(starts(launching.logs)) == 2
    eventually(lambda: launching.health() == "ready", "it tells so")


STARTING = "import time; time.sleep(600)"


def test_sigterm_during_a_start_stops_at_once(launching: Launching) -> None:
    worker = launching.worker(before=STARTING)
    start = launching.wait_for_start()
    assert launching.health() == "starting"
    assert worker.stop() == 0
    wait_until_gone(start["session"])
    assert (launching.state(), launching.health()) == ("stopped", "offline")


@pytest.mark.parametrize("before", ["", STARTING], ids=["ready", "starting"])
def test_kill_9_of_the_worker_takes_its_runtime_along(launching: Launching, before: str) -> None:
    worker = launching.worker(before=before)
    start = launching.wait_for_start() if before else launching.wait_until_ready()
    os.kill(worker.pid, signal.SIGKILL)
    wait_until_gone(start["session"])
    eventually(lambda: launching.health() == "offline", "its lease has lapsed", 10)


def test_an_attached_runtime_that_answers_with_garbage_is_left_alone_until_it_is_well(parts: Parts) -> None:
    parts.settings["RUNTIME_PATIENCE"] = str(BREAKAGE)
    runtime = parts.runtime(*SLOW)
    parts.maintenance()
    parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 10)
    fault("garbage")({"port": parts.port})
    eventually(lambda: parts.rows("SELECT 1 FROM worker WHERE state = 'unhealthy'"), "the worker notices")
    httpx.delete(f"{parts.runtime_url}/scripted/calls").raise_for_status()
    eventually(lambda: len(parts.calls()) >= 3, "it is asked again")
    assert all(call["rid"].startswith("canary") for call in parts.calls()[1:])  # one may have been on its way
    httpx.delete(f"{parts.runtime_url}/scripted/fault").raise_for_status()
    parts.wait_until_ended(job_id)
    assert check_ended_job(parts.engine, job_id)["succeeded"] == ITEMS
    assert runtime.ended() is None
    assert len(parts.rows("SELECT 1 FROM runtime_epoch")) == 1


def test_an_idle_attached_runtime_that_hangs_is_noticed_and_one_that_is_back_too(parts: Parts) -> None:
    parts.settings["RUNTIME_PATIENCE"] = "1"
    parts.runtime()
    parts.maintenance()
    worker = parts.worker()
    told = "SELECT 1 FROM worker WHERE state = :state"
    eventually(lambda: parts.rows(told, state="ready"), "the worker is ready")
    fault("hang_healthy")({"port": parts.port})
    eventually(lambda: parts.rows(told, state="unhealthy"), "the worker notices")
    httpx.delete(f"{parts.runtime_url}/scripted/fault").raise_for_status()
    job_id = parts.queue(parts.tenant(), 2)
    parts.wait_until_ended(job_id)
    assert check_ended_job(parts.engine, job_id)["succeeded"] == 2
    assert worker.ended() is None
