"""A job on a running stack: its upload, its end, and what can be read of it.

Guarantee: what `complete` returns has completed, every item with it.
"""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

import httpx

from embedded.processes import EmbeddedError

_LOOK_SECONDS = 0.2


def submit(client: httpx.Client, job: Mapping[str, object], items: Iterable[Mapping[str, object]]) -> str:
    """Upload a job with its items; its id. Raises EmbeddedError when it is not accepted."""
    lines = "".join(json.dumps(item) + "\n" for item in items).encode()
    answer = client.post(
        "/v1/jobs",
        files={"job": ("job", json.dumps(job), "application/json"), "items": ("items", lines, "application/x-ndjson")},
        timeout=600,
    )
    if answer.status_code != httpx.codes.ACCEPTED:
        raise EmbeddedError(f"POST /v1/jobs answered {answer.status_code}: {answer.text}")
    return str(answer.json()["id"])


def complete(
    client: httpx.Client, job: Mapping[str, object], items: Iterable[Mapping[str, object]]
) -> tuple[float, Mapping[str, Any]]:
    """Upload a job with its items and wait for its end: seconds until it was accepted, and the ended job.

    Raises EmbeddedError when it was not accepted, or not every item succeeded.
    """
    began = time.monotonic()
    url = f"/v1/jobs/{submit(client, job, items)}"
    accepted = time.monotonic() - began
    while (state := client.get(url).raise_for_status().json())["status"] in ("queued", "running"):
        time.sleep(_LOOK_SECONDS)
    if state["status"] != "completed":
        raise EmbeddedError(f"the job ended {state['status']}: {state['counts']}")
    return accepted, state


def read(client: httpx.Client, path: str, accept: str = "application/json") -> httpx.Response:
    """What the API has at `path`. Raises EmbeddedError when it answers with an error."""
    answer = client.get(path, headers={"Accept": accept})
    if not answer.is_success:
        raise EmbeddedError(f"GET {path} answered {answer.status_code}: {answer.text}")
    return answer
