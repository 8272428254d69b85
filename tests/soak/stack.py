"""The whole service as processes that may be killed, frozen and asked to stop, and come back by themselves.

Guarantee: `tick` starts every part again whose time has come, and continues what was frozen. Veterans are never killed
nor stopped: their memory is what a soak looks at.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import redis
from alembic import command
from alembic.config import Config

from embedded import models
from embedded.places import CHECKOUT
from embedded.processes import Child, spawn
from services.foundation.database import make_engine
from tests.committees import KIND
from tests.servers import OwnPostgres, OwnValkey

STOPS_WITHIN = 40.0  # seconds after SIGTERM in which a part must have ended
FLEET = """
[models.judge]
protocol = "sdrm"
options = {{ mode = "direct" }}
weights = "{weights}"
context_length = 8192
url = "{first}"

[models.grades]
protocol = "prompted"
protocol_options = {{ grades = 5 }}
options = {{ mode = "direct" }}
weights = "{weights}"
context_length = 8192
url = "{second}"

[models.writer]
protocol = "reappraisal"
protocol_options = {{ thinks = false }}
weights = "{weights}"
context_length = 8192
url = "{second}"

[committees.graders]
members = ["grades"]
"""


class Stuck(Exception):
    """A part did not end although it was asked to, or ended although it was not."""


@dataclass(slots=True)
class Part:
    """One process, and when it is to be started or continued: times of the monotonic clock."""

    name: str
    command: tuple[str, ...]
    veteran: bool = False
    child: Child | None = None
    start_at: float | None = 0.0
    continue_at: float | None = None
    gone_by: float | None = None  # it has been asked to stop

    @property
    def up(self) -> bool:
        """Whether it runs and nothing has been done to it yet."""
        return self.child is not None and self.continue_at is None and self.gone_by is None


class Stack:
    """All parts, with a PostgreSQL and a Valkey of their own, in `folder`. Use it from the main thread."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self._folder = folder
        first, second, *apis = ports
        self.postgres = OwnPostgres(folder / "postgres")
        self.valkey = OwnValkey(folder / "valkey")
        database_url = self.postgres.server.ensure_database("assizes")
        config = Config(CHECKOUT / "alembic.ini")
        config.attributes["url"] = database_url
        command.upgrade(config, "head")
        self.engine = make_engine(database_url, "soak")
        self.runtimes = {name: f"http://127.0.0.1:{port}" for name, port in (("first", first), ("second", second))}
        self.apis = [f"http://127.0.0.1:{port}" for port in apis]
        self.fleet = folder / "fleet.toml"
        weights = str(models.make("scripted"))
        self.fleet.write_text(FLEET.format(weights=weights, **self.runtimes), encoding="utf-8")
        settings = {
            "DATABASE_URL": database_url,
            "REDIS_URL": self.valkey.server.url(),
            "FLEET": str(self.fleet),
            "LEASE": "5",
            "HEARTBEAT": "1.5",
            "DRAIN": "3",
            "WEBHOOK_ALLOW": "127.0.0.1/32",
            "LOG_LEVEL": "warning",
        }
        self._environment = {**os.environ, **{f"ASSIZES_{name}": value for name, value in settings.items()}}
        scripted = ("embedded.scripted", "--model", weights, "--tokenizer", weights, "--slots", "16")
        scripted += ("--service-time", "lognormal:0.05,0.5", "--rule", f'{{"match": "scenario", "text": "{KIND}"}}')
        worker = ("workers", "gpu", "--model")
        self.parts = [
            Part("runtime-first", (*scripted, "--port", str(first))),
            Part("runtime-second", (*scripted, "--port", str(second))),
            Part("judge-0", (*worker, "judge"), veteran=True),
            Part("judge-1", (*worker, "judge")),
            Part("grades-0", (*worker, "grades"), veteran=True),
            Part("grades-1", (*worker, "grades")),
            Part("writer-0", (*worker, "writer")),
            Part("writer-1", (*worker, "writer")),
            Part("maintenance-0", ("workers", "maintenance"), veteran=True),
            Part("maintenance-1", ("workers", "maintenance")),
            Part("api-0", ("api", "--port", str(apis[0])), veteran=True),
            Part("api-1", ("api", "--port", str(apis[1]))),
        ]

    def broker(self) -> redis.Redis:
        """A client of the broker's server."""
        return redis.Redis(unix_socket_path=str(self.valkey.server.socket))

    def running(self) -> Iterator[Part]:
        """The parts that run undisturbed."""
        return (part for part in self.parts if part.up)

    def kill(self, part: Part, back_in: float) -> None:
        """SIGKILL, and a new start after so many seconds."""
        assert part.child is not None
        os.killpg(part.child.pid, signal.SIGKILL)
        self._gone(part, back_in)

    def freeze(self, part: Part, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so many seconds."""
        self._signal(part, signal.SIGSTOP)
        part.continue_at = time.monotonic() + seconds

    def stop(self, part: Part) -> None:
        """SIGTERM, and a new start once it has ended."""
        self._signal(part, signal.SIGTERM)
        part.gone_by = time.monotonic() + STOPS_WITHIN

    def tick(self) -> None:
        """Do what is due. Raises Stuck for a part that ended by itself, or that does not end."""
        now = time.monotonic()
        for part in self.parts:
            if part.child is None:
                if part.start_at is not None and now >= part.start_at:
                    self._start(part)
            elif (ended := part.child.ended()) is not None:
                if part.gone_by is None:
                    part.child = None
                    raise Stuck(f"{part.name} ended by itself: {ended}")
                self._gone(part, 0.0)
            elif part.gone_by is not None and now > part.gone_by:
                raise Stuck(f"{part.name} has not ended {STOPS_WITHIN:g} s after SIGTERM")
            elif part.continue_at is not None and now >= part.continue_at:
                self._signal(part, signal.SIGCONT)
                part.continue_at = None

    def calm_down(self) -> None:
        """Have everything back as soon as it can be."""
        for part in self.parts:
            part.start_at = None if part.start_at is None else 0.0
            part.continue_at = None if part.continue_at is None else 0.0
        for url in self.runtimes.values():
            with contextlib.suppress(httpx.TransportError):  # it starts without a fault
                httpx.delete(f"{url}/scripted/fault", timeout=5)

    def close(self) -> None:
        """End everything."""
        for part in reversed(self.parts):
            if part.child is not None:
                if part.child.ended() is None:
                    self._signal(part, signal.SIGCONT)
                part.child.stop(grace_seconds=10)
        self.engine.dispose()
        self.valkey.end()
        self.postgres.end()

    def _start(self, part: Part) -> None:
        command_line = [sys.executable, "-m", *part.command]
        part.child = spawn(part.name, command_line, log=self._log(part), cwd=CHECKOUT, env=self._environment)
        part.start_at = part.gone_by = part.continue_at = None

    def _gone(self, part: Part, back_in: float) -> None:
        assert part.child is not None
        part.child.stop(grace_seconds=0)
        part.child = part.gone_by = part.continue_at = None
        part.start_at = time.monotonic() + back_in

    def _signal(self, part: Part, number: signal.Signals) -> None:
        assert part.child is not None
        os.killpg(part.child.pid, number)

    def _log(self, part: Part) -> Path:
        return self._folder / "logs" / f"{part.name}.log"
