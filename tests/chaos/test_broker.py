"""The broker restarted, paused or full: jobs are accepted as if nothing were, and heard as soon as bells ring again."""

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import httpx
import pytest

from embedded.processes import Child
from embedded.valkey import Valkey
from services.contract.jobs import MOST_JUDGES
from tests.factories import MODEL, comparisons
from tests.invariants import check_ended_job
from tests.parts import PATIENCE, Parts, eventually
from tests.servers import OwnValkey

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

PACE = 40  # items of a job for each restart: so many that about all of them fall into it
SLOW = ("--service-time", "lognormal:0.2,0.5", "--slots", "16")
EVERY = 2.0  # seconds between two restarts
BACK = 30.0  # seconds from a restart until every worker consumes again
ACCEPTED = 2.0  # seconds within which a job is accepted, whatever the broker does
SUBMISSIONS = 3


@pytest.fixture(scope="module")
def valkey_server(own_valkey: OwnValkey) -> Valkey:
    return own_valkey.server


def polled(parts: Parts, seconds: float) -> list[set[str]]:
    """The queues of each poll that the broker is asked for within so many seconds."""
    polls = []
    with parts.broker() as client, client.monitor() as monitor:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            name, *arguments = monitor.next_command()["command"].split(" ")
            if name.upper() == "BRPOP":
                keys, _timeout = arguments[:-1], arguments[-1]
                polls.append({key.partition("\\x06")[0] for key in keys})  # behind it stands a priority
    return polls


@pytest.mark.parametrize("times", [2, 25])
def test_restarts_in_quick_succession(parts: Parts, own_valkey: OwnValkey, times: int) -> None:
    parts.runtime(*SLOW, "--model", parts.fleet.models[MODEL].weights)  # which both models have
    parts.maintenance()
    workers = [parts.worker(model) for model in (MODEL, "other")]
    tenant = parts.tenant()
    jobs = [parts.queue(tenant, PACE * times, judges=[model]) for model in (MODEL, "other")]
    for job_id in jobs:
        parts.wait_until_heard(job_id, 1)
    made = itertools.count(1)

    def restarted_while_idle() -> bool:
        """Whether nobody heard anything at this restart, so that only a bell can begin what is queued after it."""
        time.sleep(EVERY)
        idle = all(parts.job(job_id)["ended_at"] for job_id in jobs)
        own_valkey.restart()
        return next(made) >= times and idle

    eventually(restarted_while_idle, "all is heard between restarts", times * EVERY + PATIENCE)
    restarted = time.monotonic()
    later = [parts.queue(tenant, 1, judges=[model]) for model in (MODEL, "other")]
    for job_id in later:
        parts.wait_until_heard(job_id, 1, restarted + BACK - time.monotonic())
    for job_id in jobs + later:
        parts.wait_until_ended(job_id)
        assert check_ended_job(parts.engine, job_id)["status"] == "completed"
    polls = polled(parts, seconds=3)
    assert {queue for queues in polls for queue in queues} == {f"hear.{MODEL}", "hear.other"}
    assert {len(queues) for queues in polls} == {1}
    for worker in workers:
        assert worker.ended() is None
        assert "bell_for_another_model" not in worker.log.read_text()


@contextmanager
def paused(parts: Parts) -> Iterator[None]:
    """It accepts connections and answers nothing. (A `CLIENT PAUSE` of all would not even heed its `UNPAUSE`.)"""
    with parts.broker() as client:
        server = client.info("server")["process_id"]
    os.kill(server, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server, signal.SIGCONT)


@contextmanager
def full(parts: Parts) -> Iterator[None]:
    """It refuses what would need memory."""
    with parts.broker() as client:
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


@pytest.mark.parametrize("broken", [paused, full])
def test_jobs_are_accepted_while_the_broker_takes_nothing(
    parts: Parts, free_port: Callable[[], int], broken: Callable[[Parts], AbstractContextManager[None]]
) -> None:
    panel = [MODEL, *(f"judge-{number}" for number in range(1, MOST_JUDGES))]
    parts.enlist(*panel)
    api = parts.api(port := free_port())
    parts.runtime()
    maintenance = parts.maintenance()
    worker = parts.worker()
    parts.wait_until_ready()
    headers = {"Authorization": f"Bearer {parts.key()}"}
    with broken(parts):
        for judges in (panel, [MODEL]):
            body = {"kind": "judgement", "judges": judges, "items": comparisons(20)}
            took = []
            for _ in range(SUBMISSIONS):
                began = time.monotonic()
                answer = httpx.post(f"http://127.0.0.1:{port}/v1/jobs", json=body, headers=headers, timeout=60)
                took.append(time.monotonic() - began)
                assert answer.status_code == httpx.codes.ACCEPTED
            assert min(took) < ACCEPTED  # the others say how busy the machine is
        assert not_rung(api) == 2 * SUBMISSIONS  # none of their bells was taken
        eventually(lambda: not_rung(maintenance), "the bell ringer meets the broken broker, too")
        assert parts.rows("SELECT 1 FROM opinion") == []
    for row in parts.rows("SELECT id FROM job WHERE cardinality(judges) = 1"):
        parts.wait_until_ended(row["id"])
        assert check_ended_job(parts.engine, row["id"])["status"] == "completed"
    heard = "SELECT 1 FROM opinion JOIN job ON job.id = job_id WHERE cardinality(judges) > 1"
    eventually(
        lambda: len(parts.rows(heard)) == SUBMISSIONS * len(comparisons(20)), "the panel's first judge is heard, too"
    )
    assert api.ended() is worker.ended() is None


def not_rung(part: Child) -> int:
    """How often a part has met a broker that takes no bell."""
    return part.log.read_text().count('"bell_not_rung"')
