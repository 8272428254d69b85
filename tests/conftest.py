"""What tests stand on: a real PostgreSQL, a real Valkey, child processes that surely end, and a real SGLang.

Guarantee: servers are this test process's own (each xdist worker has its own), in a folder of /tmp that is removed;
they end with it, even when it is killed. Each test has a fresh, migrated database and an empty broker.
"""

import itertools
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import redis
from alembic import command
from alembic.config import Config
from hypothesis import HealthCheck, settings
from psycopg import sql
from sqlalchemy import Engine

from embedded import postgres, sglang, valkey
from embedded.fleet import JUDGING, MODEL
from embedded.places import CHECKOUT, HOME
from embedded.postgres import Postgres
from embedded.processes import Child, spawn
from embedded.valkey import Valkey
from services.foundation.database import make_engine
from services.foundation.fleet import FleetModel, load_fleet
from tests.committees import Committee
from tests.parts import Parts
from workers.runtime.launch import LaunchedRuntime, launch

_TEMPLATE = "assizes_template"
_database_numbers = itertools.count()

# Their names are what a test asks for; a test that asks for one of them speaks to a real SGLang.
_SGLANG_FIXTURES = {"sglang_python", "smollm2", "smollm2_server"}


# How long an example takes says how busy the machine is: no test fails for that.
# The examples are the same in every run; `pytest --hypothesis-profile search -m "not slow"` looks for new ones.
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", CALM, max_examples=1000)
settings.register_profile("assizes", CALM, derandomize=True)
settings.load_profile("assizes")


def pytest_configure(config: pytest.Config) -> None:
    """`tmp_path` lies in the checkout, in a folder of this run alone, which is removed when the run ends."""
    if config.option.basetemp is None:
        (HOME / "tests").mkdir(parents=True, exist_ok=True)
        config.option.basetemp = HOME / "tests" / str(os.getpid())
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this hook too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with a real SGLang run in one xdist worker, so that they share one server and never compete for the CPU.

    They come first, since together they take longest.
    """
    for item in items:
        if isinstance(item, pytest.Function) and not _SGLANG_FIXTURES.isdisjoint(item.fixturenames):
            item.add_marker("sglang")
        if item.get_closest_marker("sglang"):
            item.add_marker(pytest.mark.xdist_group("sglang"))
    items.sort(key=lambda item: item.get_closest_marker("sglang") is None)


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Path]:
    """A folder with a path short enough for Unix sockets, for servers that live as long as the session."""
    yield from _short_folder()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a path short enough for Unix sockets, for one test."""
    yield from _short_folder()


def _short_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="assizes-test-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres_server(server_folder: Path) -> Iterator[Postgres]:
    """PostgreSQL, with a migrated template database to which nobody is connected."""
    server = postgres.start(
        server_folder / "postgres",
        server_folder,
        server_folder / "postgres.log",
        settings={"fsync": "off", "shared_buffers": "64MB"},  # what is written survives any death but the machine's
    )
    try:
        add_template(server)
        yield server
    finally:
        server.stop()


def add_template(server: Postgres) -> None:
    """Add the database from which those of the tests are made: migrated, and nobody is connected to it."""
    config = Config(CHECKOUT / "alembic.ini")
    config.attributes["url"] = server.ensure_database(_TEMPLATE)
    command.upgrade(config, "head")


@pytest.fixture
def database_url(postgres_server: Postgres) -> Iterator[str]:
    """The SQLAlchemy URL of a database of this test's own: migrated and empty. Dropped afterwards, sessions and all."""
    name = f"test_{next(_database_numbers)}"
    with postgres_server.connect() as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(_TEMPLATE))
        )
    yield postgres_server.url(name)
    with postgres_server.connect() as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on this test's database, as the parts of the service make it."""
    engine = make_engine(database_url, "test")
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def valkey_server(server_folder: Path) -> Iterator[Valkey]:
    """Valkey."""
    server = valkey.start(server_folder / "valkey", server_folder / "valkey.sock", server_folder / "valkey.log")
    yield server
    server.stop()


@pytest.fixture
def redis_url(valkey_server: Valkey) -> str:
    """The URL of an empty broker, in the form of `ASSIZES_REDIS_URL`."""
    with redis.Redis(unix_socket_path=str(valkey_server.socket)) as client:
        client.flushall()
    return valkey_server.url()


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A function that returns a TCP port of 127.0.0.1 on which nothing listens, another one at each call."""
    given: set[int] = set()

    def pick() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port: int = probe.getsockname()[1]
            if port not in given:
                given.add(port)
                return port

    return pick


class Processes:
    """Starts child processes of one test; each has a log in the test's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[Child] = []

    def start(self, name: str, command: Sequence[str | Path], **options: object) -> Child:
        """Start `command` in the checkout. `options` as for `embedded.processes.spawn`, such as `env`."""
        log = self._folder / f"{name}-{len(self._children)}.log"
        child = spawn(name, command, log=log, **{"cwd": CHECKOUT, **options})  # type: ignore[arg-type] # as spawn checks
        self._children.append(child)
        return child

    def stop_all(self) -> None:
        """End them all, the last first."""
        while self._children:
            self._children.pop().stop()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts child processes that are gone when the test ends, whatever happens."""
    started = Processes(tmp_path)
    yield started
    started.stop_all()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of cases and data beside the checkout. Where there is none, the test is skipped."""
    folder = CHECKOUT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("there is no folder `shared` beside the checkout")
    return folder


@pytest.fixture(scope="session")
def sglang_python() -> Path:
    """The interpreter that has SGLang, installed if it is not there yet."""
    return sglang.install()


@pytest.fixture(scope="session")
def smollm2(server_folder: Path) -> FleetModel:
    """The embedded fleet's entry for SmolLM2-135M-Instruct on a real SGLang; what it needs is installed."""
    file = server_folder / "fleet.toml"
    file.write_text(JUDGING.real(), encoding="utf-8")
    return load_fleet(file).models[MODEL]


@pytest.fixture(scope="session")
def sglang_environment(server_folder: Path) -> dict[str, str]:
    """The environment of a real SGLang: what it leaves lying about goes with the session's folder."""
    return {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "TMPDIR": str(server_folder),
        "SGLANG_CACHE_DIR": str(HOME / "cache"),
    }


@pytest.fixture(scope="session")
def smollm2_server(
    smollm2: FleetModel, server_folder: Path, sglang_environment: dict[str, str]
) -> Iterator[LaunchedRuntime]:
    """A real SGLang that serves SmolLM2-135M-Instruct, 16 calls at once, shared by all tests of the session."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = launch(
        smollm2.model_copy(update={"launch": (*smollm2.launch, "--max-running-requests", "16")}),
        port=port,
        log=server_folder / "smollm2.log",
        start_s=600,
        environment=sglang_environment,
    )
    yield server
    server.stop()


@pytest.fixture
def parts(
    engine: Engine,
    database_url: str,
    redis_url: str,
    tmp_path: Path,
    free_port: Callable[[], int],
    processes: Processes,  # the last to be made, so the first to go: they end with their database still there
) -> Parts:
    """The service's parts as processes; the test starts those that it needs."""
    return Parts(processes, engine, database_url, redis_url, tmp_path, free_port())


@pytest.fixture
def committee(parts: Parts, free_port: Callable[[], int]) -> Committee:
    """A fleet that reappraises, whose parts are not started yet."""
    return Committee(parts, free_port)
