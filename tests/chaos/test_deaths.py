"""Deaths of real processes in mid-job: each job still completes, with exactly one verdict an item."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import text

from tests.factories import MODEL, comparisons
from tests.invariants import check_ended_job
from tests.parts import Parts, eventually

pytestmark = pytest.mark.chaos

ITEMS = 300
RECOVERED = 60.0  # seconds
SLOW = ("--service-time", "lognormal:0.05,0.5", "--slots", "16")


def test_kill_9_of_the_worker_in_mid_job(parts: Parts) -> None:
    parts.runtime(*SLOW)
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)
    os.kill(worker.pid, signal.SIGKILL)
    parts.worker()
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)
    assert parts.rows("SELECT sum(deaths) > 0 AS died FROM chunk") == [{"died": True}]


@pytest.mark.slow
def test_what_a_killed_worker_held_is_heard_within_a_minute(parts: Parts) -> None:
    parts.settings |= {"LEASE": "30", "HEARTBEAT": "10"}  # as by default
    parts.runtime("--service-time", "lognormal:0.2,0.5", "--slots", "16")
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)
    os.kill(worker.pid, signal.SIGKILL)
    held = len(parts.rows("SELECT 1 FROM chunk WHERE state = 'running'"))
    assert held
    parts.worker()  # as whoever looks after processes does
    again = "SELECT 1 FROM chunk WHERE state = 'finished' AND deaths > 0"
    eventually(lambda: len(parts.rows(again)) == held, "it is heard", RECOVERED)
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)


def test_a_frozen_worker_that_wakes_up_late_writes_nothing(parts: Parts) -> None:
    parts.runtime(*SLOW)
    parts.maintenance()
    frozen = parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)

    def lost() -> int:
        """How many claims were taken from it so far: on a busy machine some even before it is frozen."""
        of_it = "SELECT 1 FROM death JOIN worker ON worker.id = death.worker_id WHERE pid = :pid"
        return len(parts.rows(of_it, pid=frozen.pid))

    def fenced() -> int:
        """How often it was refused to write what it had heard."""
        return frozen.log.read_text().count('"chunk_fenced"')

    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        lost_before, fenced_before = lost(), fenced()
        eventually(lambda: lost() > lost_before, "its chunks are rescued")
        parts.worker()
        parts.wait_until_ended(job_id)
        before = check_ended_job(parts.engine, job_id)
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
    late = lost() - lost_before
    eventually(lambda: fenced() - fenced_before >= late, "each of its late writes is refused")
    assert check_ended_job(parts.engine, job_id) == before
    assert (before["status"], before["succeeded"]) == ("completed", ITEMS)


def test_flushall_on_the_broker(parts: Parts) -> None:
    parts.runtime(*SLOW)
    parts.maintenance()
    parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    client = parts.broker()
    for heard in (10, 100, 200):
        parts.wait_until_heard(job_id, heard)
        client.flushall()
    client.close()
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)


@pytest.mark.slow
def test_maintenance_and_worker_both_die_and_come_back(parts: Parts) -> None:
    parts.runtime(*SLOW)
    maintenance, worker = parts.maintenance(), parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)
    for victim in (maintenance, worker):
        os.kill(victim.pid, signal.SIGKILL)
    parts.worker()
    parts.maintenance()
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)


def test_kill_9_of_the_api_after_its_commit(parts: Parts, free_port: Callable[[], int]) -> None:
    port = free_port()
    api = parts.api(port)
    headers = {"Authorization": f"Bearer {parts.key()}"}
    body = {"kind": "judgement", "judges": [MODEL], "items": comparisons(50)}
    client = parts.broker()
    # The API, its commit done, then stands before a broker that does not answer.
    client.client_pause(60_000, all=False)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.post, f"http://127.0.0.1:{port}/v1/jobs", json=body, headers=headers, timeout=60)
        job_id = eventually(lambda: parts.rows("SELECT id FROM job"), "the job is committed")[0]["id"]
        os.killpg(api.pid, signal.SIGKILL)
        assert isinstance(answer.exception(), httpx.TransportError)
    client.client_unpause()
    client.close()
    parts.runtime()
    parts.maintenance()
    parts.worker()
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", 50)


def test_kill_9_of_the_maintenance_worker_while_a_panel_is_joined(parts: Parts) -> None:
    parts.runtime(*SLOW, "--model", parts.fleet.models[MODEL].weights)  # which both judges have
    maintenance = parts.maintenance()
    for judge in (MODEL, "other"):
        parts.worker(judge)
    with parts.engine.begin() as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        connection.execute(text("LOCK TABLE verdict IN EXCLUSIVE MODE"))  # so that it dies before it has written any
        job_id = parts.queue(parts.tenant(), ITEMS, judges=[MODEL, "other"])
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ILIKE '%verdict%'"

        def joining() -> bool:
            connection.execute(text("SELECT 1"))  # a session that stays idle in a transaction is ended
            return bool(parts.rows(waiting))

        eventually(joining, "a panel is being joined")
        os.kill(maintenance.pid, signal.SIGKILL)
    eventually(lambda: parts.rows("SELECT 1 FROM chunk WHERE model = 'cpu' AND state = 'queued'"), "opinions wait")
    assert parts.rows("SELECT count(*) AS verdicts FROM verdict") == [{"verdicts": 0}]
    for _ in range(2):
        parts.maintenance()
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)


@pytest.mark.slow
def test_a_worker_whose_lease_has_lapsed_claims_nothing(parts: Parts) -> None:
    parts.runtime("--service-time", "lognormal:0.5,0.5", "--slots", "16")  # for longer than a lease
    parts.maintenance()
    parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)
    with parts.engine.begin() as connection:
        connection.execute(text("SELECT 1 FROM worker FOR UPDATE"))  # it hears on, but cannot renew its lease
        running = text("SELECT count(*) FROM chunk WHERE state = 'running'")
        eventually(lambda: connection.scalar(running) == 0, "its chunks are rescued")
        lapsed = text("SELECT clock_timestamp() - lease_until > make_interval(secs => :seconds) FROM worker")
        eventually(lambda: connection.scalar(lapsed, {"seconds": 6}), "it has been without a lease for six seconds")
        late = text(  # what was being claimed while it lapsed may still be
            "SELECT count(*) FROM chunk WHERE claimed_at > (SELECT lease_until + interval '1 second' FROM worker)"
        )
        assert connection.scalar(late) == 0
    assert parts.rows("SELECT sum(deaths) > 0 AS died FROM chunk") == [{"died": True}]
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)
