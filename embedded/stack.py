"""The whole service on one machine: PostgreSQL, Valkey, the API, a worker with its runtime for each model, maintenance.

Guarantee: when `running` enters, every part answers; however it is left, every part is stopped, the last started first.
When the process that holds it is killed, the kernel ends the parts. Each start goes on with the data of the one before.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from embedded import postgres, valkey
from embedded.fleet import EmbeddedFleet
from embedded.places import CHECKOUT, write_atomically
from embedded.processes import Child, EmbeddedError, run, spawn
from services.foundation.errors import Misconfigured
from services.foundation.fleet import load_fleet
from services.foundation.settings import PREFIX
from services.jobs.request import check_fleet
from services.judging.registry import protocol

_API_SECONDS = 60
_RUNTIME_SECONDS = 900  # a busy machine starts SGLang in minutes, an idle one in 15 s
_DRAIN_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack. `runtime` says in words what answers the calls."""

    url: str
    api_key_file: Path
    webhook_secret_file: Path
    database_url: str
    redis_url: str
    models: tuple[str, ...]
    runtime: str
    children: tuple[Child, ...]

    def check(self) -> None:
        """Raise ChildEnded if a part ended by itself."""
        for child in self.children:
            if (ended := child.ended()) is not None:
                raise ended

    def client(self) -> httpx.Client:
        """An HTTP client of the API that presents the key."""
        key = self.api_key_file.read_text().strip()
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {key}"}, timeout=30, trust_env=False)


@contextmanager
def running(home: Path, *, port: int, scripted: bool, fleet: Path | EmbeddedFleet) -> Iterator[Stack]:
    """Run the stack for the length of the block, with its data, keys and logs in `home` (absolute).

    `port` is the API's on 127.0.0.1; 0 takes a free one. `scripted` replaces SGLang by the scripted runtime, which only
    an embedded fleet knows, and no fleet file of the caller's. `home/up.json` describes the stack while it runs.

    Raises:
        Misconfigured: the fleet file is wrong; nothing was started.
        EmbeddedError: a part did not start; what had started is stopped again.
    """
    if isinstance(fleet, Path):
        _check(fleet, scripted=scripted)
    port = _free_port(port)
    with ExitStack() as undo:
        undo.enter_context(_alone(home))
        sockets = undo.enter_context(_sockets(home))
        # apart, so that what the stand-in said of a job never stands beside what the model said
        logs, data = home / "logs", home / ("data-scripted" if scripted else "data")
        parts = _Parts(undo, logs)
        fleet_file, runtime = _choose_fleet(home, scripted, fleet, parts)
        models = tuple(load_fleet(fleet_file).models)

        database = postgres.start(data / "postgres", sockets / "pg", logs / "postgres.log")
        parts.add(database.child)
        broker = valkey.start(data / "valkey", sockets / "valkey.sock", logs / "valkey.log")
        parts.add(broker.child)

        (data / "spool").mkdir(exist_ok=True)
        url = f"http://127.0.0.1:{port}"
        database_url = database.ensure_database("assizes")
        env = _environment(
            DATABASE_URL=database_url,
            REDIS_URL=broker.url(),
            FLEET=str(fleet_file),
            PUBLIC_URL=url,
            WEBHOOK_ALLOW="127.0.0.1/32",
            SPOOL_DIR=str(data / "spool"),
            RUNTIME_LOGS=str(logs),
            DRAIN=str(_DRAIN_SECONDS),
        )
        # else SGLang leaves files in /tmp and ~/.cache
        env |= {"TMPDIR": str(sockets), "SGLANG_CACHE_DIR": str(home / "cache")}
        run("migrating the database", [sys.executable, "-m", "alembic", "upgrade", "head"], cwd=CHECKOUT, env=env)
        # the workers first: their runtimes take longest to start
        workers = {name: parts.start(f"worker-{name}", ["workers", "gpu", "--model", name], env) for name in models}
        parts.start("maintenance", ["workers", "maintenance"], env)
        api = parts.start("api", ["api", "--host", "127.0.0.1", "--port", str(port)], env)
        key, secret = _keys(data / "keys", env)
        api.wait_until(partial(_answers, f"{url}/readyz"), _API_SECONDS)

        stack = Stack(url, key, secret, database_url, broker.url(), models, runtime, tuple(parts.children))
        with stack.client() as client:
            for name, worker in workers.items():
                worker.wait_until(partial(_hears, stack, client, name), _RUNTIME_SECONDS, every=0.5)
        undo.enter_context(_described(home / "up.json", stack))
        yield stack


class _Parts:
    """The children of a stack, in the order of their start; `undo` stops them in the reverse one."""

    def __init__(self, undo: ExitStack, logs: Path) -> None:
        self._undo = undo
        self._logs = logs
        self.children: list[Child] = []

    def add(self, child: Child) -> None:
        self._undo.callback(child.stop, _DRAIN_SECONDS + 20)
        self.children.append(child)

    def start(self, name: str, module: list[str], env: Mapping[str, str]) -> Child:
        child = spawn(name, [sys.executable, "-m", *module], log=self._logs / f"{name}.log", cwd=CHECKOUT, env=env)
        self.add(child)
        return child


def _check(file: Path, *, scripted: bool) -> None:
    """Whether the API and the workers will take a fleet file, all of which run with these very packages.

    Raises Misconfigured, EmbeddedError.
    """
    if scripted:
        raise EmbeddedError(
            "scripted runtimes stand in for the shipped fleets alone, FLEET=judging and FLEET=reappraising; the models "
            f"of {file} need runtimes of their own: leave RUNTIME=scripted out"
        )
    fleet = load_fleet(file)
    check_fleet(fleet)
    for model in fleet.models.values():
        try:
            protocol(model.protocol, model.protocol_options)
        except Misconfigured as error:
            raise Misconfigured(f"the model {model.name} of the fleet file {file}: {error.message}") from error


def _choose_fleet(home: Path, scripted: bool, fleet: Path | EmbeddedFleet, parts: _Parts) -> tuple[Path, str]:
    """The fleet file, and in words what answers the calls. Starts the scripted runtimes if those do."""
    if isinstance(fleet, Path):
        return fleet.absolute(), f"the fleet file {fleet}"
    file = home / "fleet.toml"
    if not scripted:
        write_atomically(file, fleet.real())
        return file, fleet.described
    write_atomically(file, fleet.scripted(_stand_ins(fleet, parts)))
    return file, "the scripted runtime, a stand-in whose answers mean nothing"


def _stand_ins(fleet: EmbeddedFleet, parts: _Parts) -> dict[str, str]:
    """The URLs of the fleet's scripted runtimes, which it starts and tells what to write."""
    servers, urls = {}, {}
    for name, arguments in fleet.stand_ins().items():
        port = _free_port(0)
        urls[name] = f"http://127.0.0.1:{port}"
        servers[name] = parts.start(name, ["embedded", "scripted", "--port", str(port), *arguments], _environment())
    for name, url in urls.items():
        servers[name].wait_until(partial(_answers, f"{url}/ready"), 60)
        httpx.post(f"{url}/scripted/script", json=list(fleet.orders), trust_env=False).raise_for_status()
    return urls


def _environment(**settings: str) -> dict[str, str]:
    """This process's environment with `settings` on top. What else it sets for the service holds."""
    mine = {PREFIX + name: value for name, value in settings.items()}
    given = {name: value for name, value in os.environ.items() if name.removesuffix("_FILE") not in mine}
    return given | mine


def _keys(folder: Path, env: Mapping[str, str]) -> tuple[Path, Path]:
    """The files with the key and the webhook secret of a tenant of the stack's own, made at the first start."""
    key, secret = folder / "api_key", folder / "webhook_secret"
    if not (key.exists() and secret.exists()):
        folder.mkdir(mode=0o700, exist_ok=True)
        tenant = f"embedded-{secrets.token_hex(4)}"  # its secret is shown only when the tenant is new
        printed = run(
            "creating a key",
            [sys.executable, "-m", "api", "keys", "create", "--tenant", tenant],
            cwd=CHECKOUT,
            env=env,
        )
        shown = dict(line.split(": ", 1) for line in printed.splitlines() if ": " in line)
        write_atomically(secret, shown["webhook secret"] + "\n", mode=0o600)
        write_atomically(key, shown["key"] + "\n", mode=0o600)
    return key, secret


def _hears(stack: Stack, client: httpx.Client, model: str) -> bool:
    """Whether a worker hears for `model`; raises when another part has ended meanwhile."""
    stack.check()
    try:
        answer = client.get("/v1/models")
    except httpx.TransportError:
        return False
    if answer.status_code != httpx.codes.OK:
        raise EmbeddedError(f"GET /v1/models answered {answer.status_code} with the key in {stack.api_key_file}")
    return any(entry["name"] == model and entry["health"] == "ready" for entry in answer.json()["data"])


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url, timeout=5, trust_env=False).is_success
    return False


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Hold `home` for this process: two stacks would share one database's files."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "up.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EmbeddedError(f"a stack is already running on {home}; stop it first") from None
        yield


@contextmanager
def _sockets(home: Path) -> Iterator[Path]:
    """A folder whose path is short enough for sockets. Remembered, so that what a killed stack left is removed."""
    remembered = home / "sockets"
    (home / "up.json").unlink(missing_ok=True)
    if remembered.is_symlink():
        shutil.rmtree(remembered.readlink(), ignore_errors=True)
        remembered.unlink()
    folder = Path(tempfile.mkdtemp(prefix="assizes-", dir="/tmp"))
    remembered.symlink_to(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        remembered.unlink()


@contextmanager
def _described(file: Path, stack: Stack) -> Iterator[None]:
    """Keep a file that tells other programs where the stack is, for as long as it is there."""
    description = {
        "url": stack.url,
        "api_key_file": str(stack.api_key_file),
        "webhook_secret_file": str(stack.webhook_secret_file),
        "database_url": stack.database_url,
        "redis_url": stack.redis_url,
        "runtime": stack.runtime,
        "pids": {"up": os.getpid()} | {child.name: child.pid for child in stack.children},
    }
    write_atomically(file, json.dumps(description, indent=2) + "\n")
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _free_port(port: int) -> int:
    """`port`, or a free one for 0. Raises EmbeddedError when something listens on it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise EmbeddedError(f"port {port} is taken ({error.strerror}); PORT=n takes another") from error
        chosen: int = probe.getsockname()[1]
        return chosen
