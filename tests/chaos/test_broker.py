"""The broker restarted, paused or full: jobs are accepted as if nothing were, and heard as soon as bells ring again."""

import time
from collections.abc import Callable

import httpx
import pytest

from embedded.valkey import Valkey
from services.contract.jobs import MOST_JUDGES
from tests.factories import MODEL, comparisons
from tests.invariants import check_ended_job
from tests.parts import Parts, eventually
from tests.servers import OwnValkey

pytestmark = pytest.mark.chaos

PACE = 40  # items of a job for each restart: so many that all of them fall into it
SLOW = ("--service-time", "lognormal:0.2,0.5", "--slots", "16")
EVERY = 2.0  # seconds between two restarts
BACK = 30.0  # seconds until every worker consumes again
ACCEPTED = 2.0  # seconds within which a job is accepted, whatever the broker does
PAUSE = 10_000  # milliseconds
BEAT = 1.0  # seconds within which a worker asks the broker again, and the bell ringer rings


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


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, 25])
def test_restarts_in_quick_succession(parts: Parts, own_valkey: OwnValkey, times: int) -> None:
    parts.runtime(*SLOW, "--model", parts.fleet.models[MODEL].weights)  # which both models have
    parts.maintenance()
    workers = [parts.worker(model) for model in (MODEL, "other")]
    tenant = parts.tenant()
    jobs = [parts.queue(tenant, PACE * times, judges=[model]) for model in (MODEL, "other")]
    parts.wait_until_ready(2)
    for _ in range(times):
        time.sleep(EVERY)
        own_valkey.restart()
    later = [parts.queue(tenant, 1, judges=[model]) for model in (MODEL, "other")]
    began = time.monotonic()
    for job_id in jobs + later:
        parts.wait_until_ended(job_id)
        assert check_ended_job(parts.engine, job_id)["status"] == "completed"
    fresh = [parts.queue(tenant, 1, judges=[model]) for model in (MODEL, "other")]
    for job_id in fresh:
        parts.wait_until_ended(job_id, max(1.0, BACK - (time.monotonic() - began)))
    polls = polled(parts, seconds=3)
    assert {queue for queues in polls for queue in queues} == {f"hear.{MODEL}", "hear.other"}
    assert {len(queues) for queues in polls} == {1}
    for worker in workers:
        assert worker.ended() is None
        assert "bell_for_another_model" not in worker.log.read_text()


def pause(parts: Parts) -> None:
    with parts.broker() as client:
        client.client_pause(PAUSE, all=True)


def fill(parts: Parts) -> None:
    with parts.broker() as client:
        client.config_set("maxmemory", 1)


def empty(parts: Parts) -> None:
    with parts.broker() as client:
        client.config_set("maxmemory", 0)


@pytest.mark.parametrize(
    ("break_it", "mend_it"),
    [
        pytest.param(pause, lambda _: None, id="paused", marks=pytest.mark.slow),  # it goes on by itself
        pytest.param(fill, empty, id="full"),
    ],
)
def test_jobs_are_accepted_while_the_broker_takes_nothing(
    parts: Parts,
    free_port: Callable[[], int],
    break_it: Callable[[Parts], None],
    mend_it: Callable[[Parts], None],
) -> None:
    panel = [MODEL, *(f"judge-{number}" for number in range(1, MOST_JUDGES))]
    parts.enlist(*panel)
    api = parts.api(port := free_port())
    parts.runtime()
    parts.maintenance()
    worker = parts.worker()
    parts.wait_until_ready()
    headers = {"Authorization": f"Bearer {parts.key()}"}
    break_it(parts)
    for judges in (panel, [MODEL]):
        body = {"kind": "judgement", "judges": judges, "items": comparisons(20)}
        took = []
        for _ in range(3):
            began = time.monotonic()
            answer = httpx.post(f"http://127.0.0.1:{port}/v1/jobs", json=body, headers=headers, timeout=60)
            took.append(time.monotonic() - began)
            assert answer.status_code == httpx.codes.ACCEPTED
        assert min(took) < ACCEPTED  # the others say how busy the machine is
    time.sleep(2 * BEAT)  # the worker meets the broken broker, too
    mend_it(parts)
    for row in parts.rows("SELECT id FROM job WHERE cardinality(judges) = 1"):
        parts.wait_until_ended(row["id"])
        assert check_ended_job(parts.engine, row["id"])["status"] == "completed"
    heard = "SELECT 1 FROM opinion JOIN job ON job.id = job_id WHERE cardinality(judges) > 1"
    eventually(lambda: len(parts.rows(heard)) == 3 * 20, "the panel's first judge is heard, too")
    assert api.ended() is worker.ended() is None
