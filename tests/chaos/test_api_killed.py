"""The API killed at each step of accepting a job: what was committed is heard, what was not has left nothing."""

import signal
from collections.abc import Callable

import httpx
import pytest

from tests.factories import MODEL, comparisons
from tests.invariants import check_ended_job
from tests.parts import Parts, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ITEMS = 40
POINTS = {
    "before the commit": "services.jobs.submit:load_job",  # all is written, nothing is committed
    "after the commit": "api.routes.jobs:submit",
    "after the bells": "services.jobs.dispatch:Bell.ring",
    "before the response": "api.routes.jobs:_queued",
}


def test_kill_9_of_the_api_around_its_commit(parts: Parts, free_port: Callable[[], int]) -> None:
    headers = {"Authorization": f"Bearer {parts.key()}"}

    def submit(port: int, name: str) -> httpx.Response:
        body = {"kind": "judgement", "judges": [MODEL], "items": comparisons(ITEMS), "name": name}
        return httpx.post(f"http://127.0.0.1:{port}/v1/jobs", json=body, headers=headers, timeout=60)

    for name, target in POINTS.items():
        api = parts.doomed_api(port := free_port(), "--after", target)
        with pytest.raises(httpx.TransportError):
            submit(port, name)
        eventually(api.ended, f"it dies {name}")
        assert api.popen.returncode == -signal.SIGKILL
    committed = parts.rows("SELECT id, name FROM job ORDER BY id")
    assert [job["name"] for job in committed] == list(POINTS)[1:]
    for table in ("item", "chunk"):
        stray = f"SELECT 1 FROM {table} WHERE NOT EXISTS (SELECT 1 FROM job WHERE job.id = {table}.job_id)"
        assert parts.rows(stray) == []
    parts.api(port := free_port())
    assert submit(port, "the caller's next attempt").status_code == httpx.codes.ACCEPTED
    parts.runtime()
    parts.maintenance()
    parts.worker()
    for row in parts.rows("SELECT id FROM job"):
        parts.wait_until_ended(row["id"])
        assert check_ended_job(parts.engine, row["id"])["succeeded"] == ITEMS
