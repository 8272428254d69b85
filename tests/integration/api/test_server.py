"""`python -m api` as a process: keys from the command line, bulk uploads in flat memory, a graceful end."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, text

from embedded.places import CHECKOUT
from embedded.processes import Child
from services.foundation.database import transaction
from services.foundation.settings import Settings
from tests.conftest import Processes
from tests.factories import MODEL
from tests.parts import PATIENCE, eventually

TEXT = "Reasons there are many, and here is one more of them. " * 10


@pytest.fixture
def environment(settings: Settings) -> Mapping[str, str]:
    """The environment of an API."""
    return {
        **os.environ,
        "ASSIZES_DATABASE_URL": settings.database_url,
        "ASSIZES_REDIS_URL": settings.redis_url,
        "ASSIZES_FLEET": str(settings.fleet),
    }


def run(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m api ...` to its end."""
    command = [sys.executable, "-m", "api", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)


def new_key(environment: Mapping[str, str], tenant: str) -> str:
    """A key of a tenant."""
    return run(environment, "keys", "create", "--tenant", tenant).stdout.split()[1]


class Server:
    """A served API."""

    def __init__(self, child: Child, port: int, key: str) -> None:
        self.child = child
        self.url = f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": f"Bearer {key}"}
        child.wait_until(self._ready, PATIENCE)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def upload(self, count: int, meanwhile: Callable[[], None] = lambda: None) -> httpx.Response:
        """Send so many items, made as they are sent; call `meanwhile` when half of them have gone."""

        def body() -> Iterator[bytes]:
            job = json.dumps({"kind": "judgement", "judges": [MODEL]})
            yield f'--cut\r\nContent-Disposition: form-data; name="job"\r\n\r\n{job}\r\n'.encode()
            yield b'--cut\r\nContent-Disposition: form-data; name="items"; filename="items.ndjson"\r\n\r\n'
            for start in range(0, count, 500):
                yield "".join(map(line, range(start, min(start + 500, count)))).encode()
                if start <= count // 2 < start + 500:
                    meanwhile()
            yield b"\r\n--cut--\r\n"

        headers = {**self.headers, "Content-Type": "multipart/form-data; boundary=cut"}
        return httpx.post(f"{self.url}/v1/jobs", headers=headers, content=body(), timeout=600)

    def peak(self) -> float:
        """The highest resident memory that the serving process ever had, in MiB."""
        (worker,) = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()
        status = Path(f"/proc/{worker}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024


def line(number: int) -> str:
    """One item of about 1.3 kB."""
    item = {
        "custom_id": f"item-{number}",
        "context": [{"role": "user", "content": f"{number}? "}],
        "candidates": [{"content": TEXT, "system": "ours"}, {"content": TEXT, "system": "theirs"}],
        "label": "A",
    }
    return json.dumps(item) + "\n"


@pytest.fixture
def serve(processes: Processes, environment: Mapping[str, str], free_port: Callable[[], int]) -> Callable[..., Server]:
    """Starts APIs."""

    def start(**settings: str) -> Server:
        port = free_port()
        key = new_key(environment, "acme")
        command = [sys.executable, "-m", "api", "--port", str(port)]
        return Server(processes.start("api", command, env={**environment, **settings}), port, key)

    return start


def test_keys(environment: Mapping[str, str], engine: Engine) -> None:
    made = run(environment, "keys", "create", "--tenant", "acme")
    assert made.returncode == 0, made.stderr
    key_line, secret_line = made.stdout.splitlines()
    assert re.fullmatch(r"key: ask_[A-Za-z0-9_-]{43}", key_line)
    assert re.fullmatch(r"webhook secret: whsec_[A-Za-z0-9+/]+=*", secret_line)
    second = run(environment, "keys", "create", "--tenant", "acme").stdout.splitlines()
    assert [part.partition(":")[0] for part in second] == ["key"]
    key, other = key_line.split()[1], second[0].split()[1]
    with transaction(engine) as connection:
        tables = [
            str(connection.execute(text(f"SELECT * FROM {table}")).mappings().all()) for table in ("api_key", "tenant")
        ]
        assert connection.execute(text("SELECT count(*) FROM tenant")).scalar_one() == 1
    assert key not in "".join(tables)
    assert secret_line.split()[2] in tables[1]

    listed = run(environment, "keys", "list").stdout
    assert key not in listed
    assert [line.split("\t")[0] for line in listed.splitlines()] == ["acme", "acme"]
    assert run(environment, "keys", "revoke", "--key", key).returncode == 0
    assert run(environment, "keys", "revoke", "--hint", other[:10]).stdout == "revoked\n"
    again = run(environment, "keys", "revoke", "--key", key)
    assert (again.returncode, again.stdout) == (1, "")
    assert "no such live key" in again.stderr
    assert run(environment, "keys", "list").stdout.count("\trevoked") == 2


def test_what_is_wrong_with_the_start_is_said(environment: Mapping[str, str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('[models.m]\nprotocol = "sdrm"\nweights = "w"\noptions = { mode = "fast" }\n', encoding="utf-8")
    for changes, reason in (
        ({"ASSIZES_FLEET": str(wrong)}, "the options of the model m are wrong"),
        ({"ASSIZES_FLEET": str(tmp_path / "none.toml")}, "cannot be read"),
        ({"ASSIZES_COLOUR": "red"}, "ASSIZES_COLOUR"),
    ):
        ended = run({**environment, **changes})
        assert ended.returncode == 2
        assert reason in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_memory_does_not_grow_with_a_job(serve: Callable[..., Server], engine: Engine) -> None:
    server = serve()
    peaks: dict[int, float] = {}
    for count in (10_000, 100_000):
        response = server.upload(count)
        assert response.status_code == 202, response.text
        job = response.json()
        assert job["counts"]["total"] == count
        httpx.post(f"{server.url}/v1/jobs/{job['id']}/cancel", headers=server.headers).raise_for_status()
        headers = {**server.headers, "Accept": "application/x-ndjson"}
        with httpx.stream("GET", f"{server.url}/v1/jobs/{job['id']}/results", headers=headers) as answer:
            assert [json.loads(one)["seq"] for one in answer.iter_lines()] == list(range(count))
        peaks[count] = server.peak()
    print(f"peak resident memory in MiB by items: {peaks}")
    assert peaks[100_000] - peaks[10_000] < 16
    with transaction(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM item")).scalar_one() == 110_000


def test_a_large_refusal_reaches_its_sender(serve: Callable[..., Server]) -> None:
    server = serve(ASSIZES_MAX_UPLOAD_BYTES=str(1 << 20))
    large = b"x" * (8 << 20)
    kinds: list[tuple[dict[str, str], int]] = [
        ({"Content-Type": "application/json"}, 401),
        ({**server.headers, "Content-Type": "text/plain"}, 415),
        ({**server.headers, "Content-Type": "application/json"}, 413),
        ({**server.headers, "Content-Type": "multipart/form-data; boundary=cut"}, 413),
    ]
    for headers, status in kinds:
        response = httpx.post(f"{server.url}/v1/jobs", headers=headers, content=large, timeout=PATIENCE)
        assert response.status_code == status
        assert response.headers["Content-Type"] == "application/problem+json"


def test_a_running_request_is_answered_before_the_end(serve: Callable[..., Server]) -> None:
    server = serve()

    def stop() -> None:
        os.kill(server.child.pid, signal.SIGTERM)
        eventually(lambda: not accepts(server.url), "no new connection is taken")

    response = server.upload(2000, meanwhile=stop)
    assert response.status_code == 202, response.text
    eventually(server.child.ended, "the server ends")
    assert server.child.stop() == 0


def accepts(url: str) -> bool:
    """Whether a new request is answered."""
    try:
        httpx.get(f"{url}/healthz", timeout=1)
    except httpx.TransportError:
        return False
    return True
