"""The parts of the service as real processes, for tests that start, kill and restart them.

Guarantee: whatever a test leaves running is stopped by the `processes` fixture that started it.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import httpx
import redis
from sqlalchemy import Engine, text

from api.keys import create_key
from embedded import models
from embedded.processes import Child
from services.foundation.database import transaction
from services.foundation.fleet import Fleet, load_fleet
from services.jobs.states import ENDED
from tests.factories import MODEL, make_tenant, queue_job
from tests.fakes.launchable import interpreter

PATIENCE = 90.0  # seconds for what takes a few: a test must not fail because the machine is busy
LONG_LEASE = {"LEASE": "20", "HEARTBEAT": "5"}  # where nobody may be taken for dead, however busy it is


class Starter(Protocol):
    """What starts processes: the `processes` fixture."""

    def start(self, name: str, command: list[str], **options: object) -> Child:
        """Start one."""
        ...


def eventually(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait until `condition()` is truthy and return what it was."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
    return value


def resident(pid: int) -> float:
    """A process's resident memory, in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@dataclass
class Parts:
    """One scripted runtime, and as many workers, maintenance processes and APIs as a test starts."""

    processes: Starter
    engine: Engine
    database_url: str
    redis_url: str
    folder: Path
    port: int
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fleet_file = self.folder / "fleet.toml"
        self.enlist(MODEL, "other")

    def enlist(self, *names: str) -> None:
        """Have the fleet hold these models, all on the one runtime."""
        entries = (
            f'[models.{name}]\nprotocol = "sdrm"\nweights = "{models.make("scripted")}"\ncontext_length = 8192\n'
            f'url = "{self.runtime_url}"\noptions = {{ mode = "direct" }}\n'
            for name in names
        )
        self.fleet_file.write_text("\n".join(entries), encoding="utf-8")

    def enlist_launched(self, *scripted: str, before: str = "") -> None:
        """Have the fleet hold the model alone, on a scripted runtime that its worker launches, see tests.fakes."""
        self.fleet_file.write_text(
            f'[models.{MODEL}]\nprotocol = "sdrm"\nweights = "{models.make("scripted")}"\ncontext_length = 8192\n'
            f'python = "{interpreter(self.folder, *scripted, before=before)}"\noptions = {{ mode = "direct" }}\n',
            encoding="utf-8",
        )

    @property
    def fleet(self) -> Fleet:
        """The fleet that the parts share."""
        return load_fleet(self.fleet_file)

    @property
    def runtime_url(self) -> str:
        """Where the scripted runtime listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every part: leases are short, so that deaths are noticed soon."""
        own = {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "FLEET": str(self.fleet_file),
            "LEASE": "3",
            "HEARTBEAT": "1",
            "WEBHOOK_ALLOW": "127.0.0.1/32",
            **self.settings,
        }
        return {**os.environ, **{f"ASSIZES_{name}": value for name, value in own.items()}}

    def start(self, name: str, *command: str, env: Mapping[str, str] | None = None) -> Child:
        """Start `python -m ...` as a part."""
        return self.processes.start(name, [sys.executable, "-m", *command], env=env or self.environment)

    def runtime(self, *arguments: str) -> Child:
        """Start the scripted runtime and wait until it answers."""
        child = self.start(
            "runtime",
            *("embedded.scripted", "--port", str(self.port), "--model", MODEL),
            *("--tokenizer", str(models.make("scripted")), *arguments),
        )
        child.wait_until(lambda: self.answers("/ready"), PATIENCE)
        return child

    def worker(self, model: str = MODEL) -> Child:
        """Start a worker; it is ready some seconds later."""
        return self.start("worker", "workers", "gpu", "--model", model)

    def maintenance(self) -> Child:
        """Start a maintenance worker."""
        return self.start("maintenance", "workers", "maintenance")

    def api(self, port: int) -> Child:
        """Start the API and wait until it is ready."""
        return self._ready(self.start("api", "api", "--port", str(port)), port)

    def doomed_worker(self, *how: str) -> Child:
        """Start a worker that dies as the arguments of `tests.fakes.doomed` say."""
        return self.start("doomed", "tests.fakes.doomed", *how, "--", "workers", "gpu", "--model", MODEL)

    def doomed_api(self, port: int, *how: str) -> Child:
        """Start an API that dies so and wait until it is ready."""
        return self._ready(self.start("doomed", "tests.fakes.doomed", *how, "--", "api", "--port", str(port)), port)

    def _ready(self, api: Child, port: int) -> Child:
        api.wait_until(lambda: self.answers("/readyz", f"http://127.0.0.1:{port}"), PATIENCE)
        return api

    def broker(self) -> redis.Redis:
        """A client of the broker's server."""
        return redis.Redis.from_url(self.redis_url.replace("redis+socket", "unix").split("?")[0])

    def key(self, tenant: str = "acme") -> str:
        """A new key of a tenant, which is made if it is not there."""
        with transaction(self.engine) as connection:
            return create_key(connection, tenant).key

    def answers(self, path: str, url: str | None = None) -> bool:
        """Whether a server, by default the runtime, says 200."""
        try:
            return httpx.get((url or self.runtime_url) + path, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def script(self, *rules: Mapping[str, object]) -> None:
        """Tell the runtime what to answer."""
        httpx.post(f"{self.runtime_url}/scripted/script", json=list(rules)).raise_for_status()

    def calls(self) -> list[dict[str, Any]]:
        """The calls that the runtime has seen."""
        seen: list[dict[str, Any]] = httpx.get(f"{self.runtime_url}/scripted/calls").raise_for_status().json()
        return seen

    def running_calls(self) -> int:
        """The runtime's gauge of running calls."""
        loads = httpx.get(f"{self.runtime_url}/v1/loads").raise_for_status().json()["loads"]
        return sum(int(rank["num_running_reqs"]) + int(rank["num_waiting_reqs"]) for rank in loads)

    def tenant(self) -> UUID:
        """A new tenant."""
        return make_tenant(self.engine)

    def queue(self, tenant: UUID, items: Any, **request: Any) -> UUID:
        """Queue a job, without ringing for it."""
        return queue_job(self.engine, tenant, items, fleet=self.fleet, **request)

    def job(self, job_id: UUID) -> dict[str, Any]:
        """A job's row."""
        return self.rows("SELECT * FROM job WHERE id = :job_id", job_id=job_id)[0]

    def rows(self, statement: str, **values: object) -> list[dict[str, Any]]:
        """What a statement finds."""
        with transaction(self.engine) as connection:
            return [dict(row) for row in connection.execute(text(statement), values).mappings()]

    def wait_until_ended(self, job_id: UUID, seconds: float = PATIENCE) -> dict[str, Any]:
        """Wait for a job's end and return its row."""
        eventually(lambda: self.job(job_id)["status"] in ENDED, "the job ends", seconds)
        return self.job(job_id)

    def wait_until_ready(self, workers: int = 1) -> None:
        """Wait until so many workers are ready."""
        ready = "SELECT 1 FROM worker WHERE state = 'ready' AND lease_until > now()"
        eventually(lambda: len(self.rows(ready)) >= workers, f"{workers} workers are ready")

    def wait_until_heard(self, job_id: UUID, items: int, seconds: float = PATIENCE) -> None:
        """Wait until at least so many items have verdicts."""
        count = "SELECT count(*) AS n FROM verdict WHERE job_id = :job_id"
        eventually(lambda: self.rows(count, job_id=job_id)[0]["n"] >= items, f"{items} items are heard", seconds)
