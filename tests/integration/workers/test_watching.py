"""What the parts write and count while a job runs: real processes, read as an operator reads them."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from services.foundation.broker import make_broker, ring
from services.foundation.identifiers import shown
from tests.factories import MODEL, comparisons
from tests.invariants import check_ended_job
from tests.parts import Parts, eventually

ALWAYS = {"event", "level", "logger", "process", "timestamp"}
CALLERS_TEXT = "the-text-of-a-caller"
PAGE = "assizes_"


def lines(log: Path) -> list[dict[str, Any]]:
    """A part's log, line by line; each is JSON."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def metrics(port: int) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """What a part shows: values by name and labels."""
    page = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).raise_for_status().text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith(PAGE)
    }


def labelled(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Names one value on a page."""
    return name, frozenset(labels.items())


class Watched:
    """The parts of the service with their metrics shown, while they hear one job of a caller."""

    def __init__(self, parts: Parts, free_port: Callable[[], int]) -> None:
        self.parts = parts
        self.api_port, self.worker_port, self.house_port = free_port(), free_port(), free_port()
        self.key = parts.key()
        self.tenant = parts.rows("SELECT id FROM tenant")[0]["id"]
        parts.runtime()
        parts.settings["METRICS_PORT"] = str(self.house_port)
        self.house = parts.maintenance()
        parts.settings["METRICS_PORT"] = str(self.worker_port)
        self.worker = parts.worker()
        self.api = parts.api(self.api_port)
        eventually(lambda: parts.rows("SELECT 1 FROM worker WHERE state = 'ready'"), "the worker is ready")

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Ask the API."""
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        return httpx.request(method, f"http://127.0.0.1:{self.api_port}{path}", headers=headers, timeout=60, **options)

    def judge(self, items: list[dict[str, Any]], **request: Any) -> dict[str, Any]:
        """Submit a job and wait for its end."""
        body = {"kind": "judgement", "judges": [MODEL], "items": items, **request}
        submitted = self.ask("POST", "/v1/jobs", json=body, headers={"X-Request-Id": "request-7"}).raise_for_status()
        job_id = self.parts.rows("SELECT id FROM job ORDER BY id DESC LIMIT 1")[0]["id"]
        assert submitted.json()["id"] == shown("job", job_id)
        self.parts.wait_until_ended(job_id)
        return check_ended_job(self.parts.engine, job_id)


@pytest.fixture
def watched(parts: Parts, free_port: Callable[[], int]) -> Watched:
    return Watched(parts, free_port)


@pytest.fixture
def broker(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the broker's server, which has its memory and its master back in the end."""
    client = redis.Redis.from_url(redis_url.replace("redis+socket", "unix").split("?")[0])
    yield client
    client.execute_command("REPLICAOF", "NO", "ONE")
    client.config_set("maxmemory", 0)
    client.close()


def test_every_line_is_json_that_names_its_unit_of_work_and_no_callers_text(
    watched: Watched, free_port: Callable[[], int]
) -> None:
    parts = watched.parts
    items = comparisons(40)
    for item in items:
        item["candidates"][0]["content"] = item["custom_id"] = f"{CALLERS_TEXT} {item['custom_id']}"
    nobody = f"http://127.0.0.1:{free_port()}/{CALLERS_TEXT}"
    job = watched.judge(items, name=CALLERS_TEXT, metadata={"a": CALLERS_TEXT}, callback={"url": nobody})
    job_id = shown("job", job["id"])
    eventually(lambda: parts.rows("SELECT 1 FROM delivery_attempt"), "the webhook is attempted")
    watched.ask("GET", f"/v1/jobs/{CALLERS_TEXT}")
    parts.engine.dispose()
    with redis.Redis.from_url(parts.redis_url.replace("redis+socket", "unix").split("?")[0]) as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # Celery tells of it
    eventually(lambda: "celery" in watched.worker.log.read_text("utf-8"), "Celery tells that its connection is gone")
    for part in (watched.api, watched.worker, watched.house):
        part.stop()
    secrets = [row["webhook_secret"] for row in parts.rows("SELECT webhook_secret FROM tenant")]
    for part in (watched.api, watched.worker, watched.house):
        for line in lines(part.log):
            assert line.keys() >= ALWAYS, line
            assert not {CALLERS_TEXT, watched.key, *secrets, parts.database_url}.intersection(texts(line)), line
            assert not any(text in json.dumps(line) for text in (CALLERS_TEXT, watched.key, *secrets))

    (queued,) = [line for line in lines(watched.api.log) if line["event"] == "job_queued"]
    assert (queued["job"], queued["request_id"], queued["process"]) == (job_id, "request-7", "api")
    heard = [line for line in lines(watched.worker.log) if line["event"] == "chunk_let_go"]
    worker = parts.rows("SELECT id, epoch_id FROM worker")[0]
    assert sorted(line["chunk"] for line in heard) == ["hear/0.0", "hear/1.0"]
    for line in heard:
        assert (line["job"], line["fence"], line["ending"]) == (job_id, 1, "finished")
        assert (line["worker"], line["epoch"]) == (str(worker["id"]), str(worker["epoch_id"]))
    told = [line for line in lines(watched.house.log) if line["event"] == "webhook_attempted"]
    assert {(line["job"], line["chore"], line["status"]) for line in told} == {(job_id, "Courier", None)}
    assert {line["delivery"][:4] for line in told} == {"msg_"}


def texts(line: dict[str, Any]) -> set[str]:
    """The values of a line that are texts."""
    return {value for value in line.values() if isinstance(value, str)}


def test_what_a_worker_hears_is_counted(watched: Watched) -> None:
    job = watched.judge(comparisons(40))
    page = metrics(watched.worker_port)
    model = {"model": MODEL}
    assert sum(value for (name, _), value in page.items() if name == "assizes_calls_total") == job["calls"] == 80
    assert page[labelled("assizes_calls_total", outcome="decided", **model)] == 80
    assert page[labelled("assizes_runtime_answers_total", answer="answered", **model)] == 80
    assert page[labelled("assizes_runtime_answers_total", answer="failed", **model)] == 0
    for kind in ("prompt", "cached", "completion"):
        assert page[labelled("assizes_tokens_total", kind=kind, **model)] >= job[f"{kind}_tokens"]
    assert page[labelled("assizes_call_seconds_count", **model)] == 80
    assert page[labelled("assizes_chunks_claimed_total", **model)] == 2
    assert page[labelled("assizes_chunks_let_go_total", ending="finished", **model)] == 2
    assert page[labelled("assizes_chunks_let_go_total", ending="fenced", **model)] == 0
    assert page[labelled("assizes_flushed_rows_total", **model)] == 80 + 40 + 40  # traces, opinions, verdicts
    assert page[labelled("assizes_flush_seconds_count", **model)] >= 2
    assert page[labelled("assizes_calls_running", **model)] == 0
    assert page[labelled("assizes_calls_running_target", **model)] > 1
    assert page[labelled("assizes_runtime_state", state="ready", **model)] == 1
    assert page[labelled("assizes_runtime_state", state="unhealthy", **model)] == 0


def test_what_maintenance_does_is_counted(watched: Watched) -> None:
    watched.judge(comparisons(3), callback={"url": f"http://127.0.0.1:{watched.house_port}/refuses-a-post"})
    attempts = labelled("assizes_webhook_attempt_seconds_count", status="5xx")

    def attempted() -> bool:
        return sum(v for (name, _), v in metrics(watched.house_port).items() if name == attempts[0]) == 1

    eventually(attempted, "the webhook is attempted")
    page = metrics(watched.house_port)
    for chore in ("BellRinger", "Concluder", "Courier", "PartitionMaker", "Rescuer"):
        assert page[labelled("assizes_chore_seconds_count", chore=chore)] >= 1
        assert page[labelled("assizes_chore_last_success_timestamp_seconds", chore=chore)] > 1.7e9
    assert not any(value for (name, _), value in page.items() if name == "assizes_chore_failures_total")


def test_what_the_database_holds_is_shown_by_the_api(watched: Watched) -> None:
    watched.judge(comparisons(3))
    watched.worker.stop()
    watched.parts.queue(watched.tenant, 40, judges=["other"])
    page = metrics(watched.api_port)
    assert page[labelled("assizes_database_up")] == 1
    assert page[labelled("assizes_queued_chunks", model="other")] == 2
    assert page[labelled("assizes_queue_oldest_seconds", model="other")] > 0
    assert page[labelled("assizes_queued_chunks", model=MODEL)] == 0
    assert page[labelled("assizes_open_jobs", status="queued")] == 1
    assert page[labelled("assizes_workers", model=MODEL, state="ready")] == 0
    assert page[labelled("assizes_silent_workers", model=MODEL)] == 0
    assert page[labelled("assizes_jobs_submitted_total", model=MODEL)] == 1


def test_rescued_chunks_and_lost_leases_are_counted(watched: Watched) -> None:
    parts = watched.parts
    parts.script({"latency_s": 600})
    parts.queue(watched.tenant, 3)
    eventually(lambda: parts.rows("SELECT 1 FROM chunk WHERE state = 'running'"), "a chunk is claimed")
    watched.worker.popen.kill()
    rescued = labelled("assizes_chunks_rescued_total", model=MODEL)
    eventually(lambda: metrics(watched.house_port).get(rescued) == 1, "the chunk is rescued")
    page = metrics(watched.api_port)
    assert page[labelled("assizes_silent_workers", model=MODEL)] == 1
    assert page[labelled("assizes_orphaned_chunks", model=MODEL)] == 0


@pytest.mark.parametrize("refusal", [["CONFIG", "SET", "maxmemory", "1"], ["REPLICAOF", "127.0.0.1", "1"]])
def test_a_broker_that_refuses_commands_is_outlived(watched: Watched, broker: redis.Redis, refusal: list[str]) -> None:
    watched.judge(comparisons(3))
    told = {"CONFIG": "OutOfMemoryError", "REPLICAOF": "ReadOnlyError"}[refusal[0]]
    os.kill(watched.worker.pid, signal.SIGSTOP)
    ring(make_broker(watched.parts.redis_url, patience=5), MODEL, 1)  # it will be taken, and cannot be noted down
    broker.execute_command(*refusal)
    os.kill(watched.worker.pid, signal.SIGCONT)
    eventually(lambda: told in watched.worker.log.read_text("utf-8"), "the worker is refused a command")
    failed = labelled("assizes_bell_failures_total", model=MODEL)
    job_id = watched.parts.queue(watched.tenant, 3)
    eventually(lambda: metrics(watched.house_port).get(failed, 0) > 0, "a bell is not taken")
    assert watched.worker.ended() is None
    broker.execute_command("REPLICAOF", "NO", "ONE")
    broker.config_set("maxmemory", 0)
    watched.parts.wait_until_ended(job_id)
    assert check_ended_job(watched.parts.engine, job_id)["succeeded"] == 3
    assert watched.worker.stop() == 0
