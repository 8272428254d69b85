"""`python -m embedded shares`: what a large job costs the others.

Guarantee: real parts, one worker, the scripted runtime with 32 slots and the service time that is printed; jobs come in
by the API and are looked at through it. Figures are of this one run on this one machine.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import redis

from embedded.fleet import JUDGING
from embedded.jobs import submit
from embedded.places import CHECKOUT
from embedded.processes import EmbeddedError, run
from embedded.stack import Stack, running
from services.foundation.settings import PREFIX

SLOTS = 32  # of the runtime
CHUNK_SLOTS = 16  # of the worker, of chunks of 32 items
PROBES = 20
SPREAD = 0.2  # of the logarithm of service times: calls do not end in step
_LOOK_SECONDS = 0.02
_WAIT_SECONDS = 600.0  # for any state of a job: many times what the slowest takes here


def shares(home: Path, *, items: int, service_s: float) -> int:
    """Measure both, print it as JSON, and clear away what was queued. Raises EmbeddedError."""
    with _stack(home, service_s) as stack, stack.client() as client:
        figures = {"beside_a_bulk_job": _probe(stack, client, items, service_s)}
    scaled = service_s / 4  # else it would take four times as long
    with _stack(home, scaled) as stack, stack.client() as large, stack.client() as small:
        small.headers["Authorization"] = f"Bearer {_new_key(stack)}"
        figures["two_tenants"] = _share(stack.models, large, small, items // 2, items // 200, scaled)
    print(json.dumps(figures, indent=2))
    return 0


def _probe(stack: Stack, client: httpx.Client, items: int, service_s: float) -> dict[str, object]:
    """Answer times of single items of the class `interactive` beside a bulk job, one after the other."""
    empty = _broker(stack)
    with _queued(client, stack.models, items, "bulk") as bulk:
        _wait_for_items(client, bulk, CHUNK_SLOTS)
        full = _broker(stack)
        seconds = sorted(_answer_time(client, stack.models, number) for number in range(PROBES))
        heard = _succeeded(client, bulk)
    return {
        "items_queued": items,
        "items_heard_meanwhile": heard,
        "service_time_s": service_s,
        "probes": PROBES,
        "answered_after_s": {
            "median": round(statistics.median(seconds), 2),
            "slowest": round(seconds[-1], 2),
        },
        "median_beyond_the_service_time_ms": round(1000 * (statistics.median(seconds) - service_s)),
        "broker_when_empty": empty,
        "broker_with_all_queued": full,
    }


def _share(
    models: tuple[str, ...], large: httpx.Client, small: httpx.Client, many: int, few: int, service_s: float
) -> dict[str, object]:
    """How far two tenants get whose jobs are heard beside each other, by the end of the smaller one."""
    with _queued(large, models, many, "standard") as first:
        _wait_for_items(large, first, CHUNK_SLOTS)
        with _queued(small, models, few, "standard") as second:
            before, began = _succeeded(large, first), time.monotonic()
            _wait_for_items(small, second, few)
            ahead, seconds = _succeeded(large, first) - before, time.monotonic() - began
    return {
        "items_queued": {"large": many, "small": few},
        "service_time_s": service_s,
        "seconds": round(seconds, 1),
        "items_heard_until_the_small_one_ended": {"large": ahead, "small": few},
        "difference": ahead - few,
        "two_chunks_a_slot": 2 * 32 * CHUNK_SLOTS,
    }


def _stack(home: Path, service_s: float) -> contextlib.AbstractContextManager[Stack]:
    fleet = dataclasses.replace(JUDGING, slots=SLOTS, service_time=f"lognormal:{service_s},{SPREAD}")
    return running(home, port=0, scripted=True, fleet=fleet)


@contextlib.contextmanager
def _queued(client: httpx.Client, models: tuple[str, ...], items: int, priority: str) -> Iterator[str]:
    """The URL of a job for the length of the block; then it is cancelled and deleted."""
    job = {"kind": "judgement", "judges": models, "priority": priority}
    url = f"/v1/jobs/{submit(client, job, map(_comparison, range(items)))}"
    try:
        yield url
    finally:
        client.post(f"{url}/cancel").raise_for_status()
        _wait(client, url, _ended)
        client.delete(url).raise_for_status()


def _answer_time(client: httpx.Client, models: tuple[str, ...], number: int) -> float:
    """Seconds from before a job of one item, in one order, is submitted until its result can be read."""
    job = {
        "kind": "judgement",
        "judges": models,
        "priority": "interactive",
        "options": {"orders": "given"},
        "items": [_comparison(number)],
    }
    began = time.monotonic()
    url = f"/v1/jobs/{client.post('/v1/jobs', json=job).raise_for_status().json()['id']}"
    _wait(client, url, lambda job: job["status"] == "completed")
    return time.monotonic() - began


def _wait_for_items(client: httpx.Client, url: str, items: int) -> None:
    _wait(client, url, lambda job: int(job["counts"]["succeeded"]) >= items)


def _wait(client: httpx.Client, url: str, until: Callable[[Mapping[str, Any]], bool]) -> None:
    """Return when the job is so. Raises EmbeddedError when it ended otherwise, or is not so in time."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while not until(job := _job(client, url)):
        if _ended(job) or time.monotonic() > deadline:
            raise EmbeddedError(f"{url} is {job['status']}, and not as far as it should be: {job['counts']}")
        time.sleep(_LOOK_SECONDS)


def _ended(job: Mapping[str, Any]) -> bool:
    return job["ended_at"] is not None


def _succeeded(client: httpx.Client, url: str) -> int:
    return int(_job(client, url)["counts"]["succeeded"])


def _job(client: httpx.Client, url: str) -> Mapping[str, Any]:
    """The job as it stands. Raises EmbeddedError when an item failed."""
    job: Mapping[str, Any] = client.get(url).raise_for_status().json()
    if job["counts"]["failed"]:
        raise EmbeddedError(f"items failed: {job['counts']}")
    return job


def _broker(stack: Stack) -> dict[str, int]:
    """How many keys the broker holds, and how many bytes they take."""
    socket = stack.redis_url.removeprefix("redis+socket://").partition("?")[0]
    with redis.Redis(unix_socket_path=socket) as broker:
        keys = list(broker.scan_iter())
        return {"keys": len(keys), "bytes": sum(int(broker.memory_usage(key) or 0) for key in keys)}


def _new_key(stack: Stack) -> str:
    """The key of a new tenant."""
    env = {**os.environ, f"{PREFIX}DATABASE_URL": stack.database_url, f"{PREFIX}REDIS_URL": stack.redis_url}
    create = [sys.executable, "-m", "api", "keys", "create", "--tenant", f"small-{time.time_ns()}"]
    printed = run("creating a key", create, cwd=CHECKOUT, env=env)
    return next(line.removeprefix("key: ") for line in printed.splitlines() if line.startswith("key: "))


def _comparison(number: int) -> dict[str, object]:
    return {
        "custom_id": f"share-{number}",
        "context": [{"role": "user", "content": f"{number}: why is that so?"}],
        "candidates": [{"content": f"{number} explains it."}, {"content": f"It is so, {number}."}],
    }
