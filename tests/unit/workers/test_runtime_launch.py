"""Launching a runtime: ready or reported, alone in its environment, and gone with whoever launched it.

What is launched here is the scripted runtime.
"""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedded import models
from embedded.places import CHECKOUT
from services.foundation.fleet import FleetModel
from tests.contracts.server import Server
from tests.fakes.launchable import interpreter, starts
from tests.parts import eventually
from tests.processes import PATIENCE_S, running, session, wait_until_gone
from workers.runtime.launch import LaunchedRuntime, LaunchFailed, flags, launch


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., FleetModel]:
    """A function that makes a fleet entry whose interpreter runs `before` and then the scripted runtime."""

    def make(before: str = "") -> FleetModel:
        python = str(interpreter(tmp_path, before=before))
        return FleetModel(name="judge", protocol="sdrm", weights=str(models.make("scripted")), python=python)

    return make


@pytest.fixture
def port(free_port: Callable[[], int]) -> int:
    """A free port."""
    return free_port()


@pytest.fixture
def launched(model: Callable[..., FleetModel], port: int, tmp_path: Path) -> Iterator[LaunchedRuntime]:
    """A launched runtime."""
    environment = {**os.environ, "PYTHONPATH": "/nowhere", "ASSIZES_DATABASE_URL": "secret", "KEPT": "yes"}
    runtime = launch(
        model(),
        port=port,
        log=tmp_path / "logs" / "judge.log",
        start_s=PATIENCE_S,
        environment=environment,
    )
    yield runtime
    runtime.stop()


HOARDER = """
import _multiprocessing, mmap, signal
if os.fork() == 0:
    semaphore = _multiprocessing.SemLock(1, 1, 1, "/{name}", False)
    with open("/dev/shm/{name}", "w+b") as file:
        file.write(b"kept")
        file.flush()
        kept = mmap.mmap(file.fileno(), 4)
    open("hoarding", "w").close()
    signal.pause()
while not os.path.exists("hoarding"):
    pass
"""


def test_what_its_processes_leave_in_shared_memory_is_removed(
    model: Callable[..., FleetModel], port: int, tmp_path: Path
) -> None:
    name = f"assizes-test-{os.getpid()}-{port}"
    left = [Path(f"/dev/shm/{name}"), Path(f"/dev/shm/sem.{name}")]
    runtime = launch(model(HOARDER.format(name=name)), port=port, log=tmp_path / "judge.log", start_s=PATIENCE_S)
    try:
        assert all(file.exists() for file in left)
        runtime.stop(grace_s=0.5)
        assert not any(file.exists() for file in left)
    finally:
        runtime.stop()
        for file in left:
            file.unlink(missing_ok=True)


def test_a_launched_runtime_is_ready_and_stops_when_told(launched: LaunchedRuntime, tmp_path: Path) -> None:
    server = Server(launched.url, tmp_path, scripted=True)
    assert launched.alive
    assert server.get("/v1/models").json()["data"][0]["id"] == "judge"
    launched.stop()
    assert not launched.alive
    assert launched.process.returncode == 0  # by SIGINT, without being killed
    launched.stop()


def test_it_runs_elsewhere_in_a_session_of_its_own_without_our_settings(
    launched: LaunchedRuntime, tmp_path: Path
) -> None:
    (seen,) = starts(tmp_path / "logs")
    assert seen["cwd"] == str(tmp_path / "logs")
    assert seen["session"] == launched.process.pid
    environment = seen["environment"]
    assert environment["KEPT"] == "yes"
    assert not {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "ASSIZES_DATABASE_URL"} & environment.keys()


def test_a_runtime_that_dies_while_starting_is_reported_with_its_log(
    model: Callable[..., FleetModel], port: int, tmp_path: Path
) -> None:
    entry = model('print("no such weights", flush=True)\nsys.exit(3)')
    with pytest.raises(LaunchFailed, match="ended with status 3") as caught:
        launch(entry, port=port, log=tmp_path / "judge.log", start_s=PATIENCE_S)
    assert caught.value.log_tail == "no such weights\n"
    assert (caught.value.message, caught.value.log) == (
        "the runtime ended with status 3 while it started",
        tmp_path / "judge.log",
    )


def test_a_runtime_that_never_gets_ready_is_stopped_and_reported(
    model: Callable[..., FleetModel], port: int, tmp_path: Path
) -> None:
    entry = model("import time; time.sleep(600)")
    with pytest.raises(LaunchFailed, match="was not ready after 2 s"):
        launch(entry, port=port, log=tmp_path / "judge.log", start_s=2)
    assert entry.python is not None
    assert running(entry.python) == []


def test_a_taken_port_is_reported_before_anything_starts(
    launched: LaunchedRuntime, model: Callable[..., FleetModel], port: int, tmp_path: Path
) -> None:
    with pytest.raises(LaunchFailed, match=f"port {port} is taken"):
        launch(model(), port=port, log=tmp_path / "second.log", start_s=PATIENCE_S)


SLOW_TO_ASK = """
import signal, time
if os.fork() == 0:  # as SGLang's own, which ask for their parent's death signal some seconds late
    signal.pause()
if {starting}:
    time.sleep(600)
"""


@pytest.mark.parametrize("starting", [False, True], ids=["ready", "starting"])
def test_none_of_its_processes_outlives_a_launcher_that_is_killed(
    model: Callable[..., FleetModel], port: int, tmp_path: Path, starting: bool
) -> None:
    entry = model(SLOW_TO_ASK.format(starting=starting))
    assert entry.python is not None
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from services.foundation.fleet import FleetModel\nfrom workers.runtime.launch import launch\n"
        f"model = FleetModel.model_validate_json({entry.model_dump_json()!r})\n"
        f"runtime = launch(model, port={port}, log=Path({str(tmp_path / 'judge.log')!r}), start_s={PATIENCE_S})\n"
        "print('ready', flush=True)\ntime.sleep(600)\n"
    )
    launcher = subprocess.Popen([sys.executable, "-c", program], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    try:
        assert launcher.stdout is not None
        with launcher.stdout as output:
            if not starting:
                assert output.readline() == "ready\n"
        (start,) = eventually(lambda: starts(tmp_path), "the server starts")
        eventually(lambda: len(session(start["session"])) == 3, "the leash, the server and its child run")
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    wait_until_gone(start["session"])


def test_a_server_that_dies_is_seen_to_have_died(launched: LaunchedRuntime, tmp_path: Path) -> None:
    os.kill(starts(tmp_path / "logs")[-1]["pid"], signal.SIGKILL)
    eventually(lambda: not launched.alive, "it is noticed")
    assert launched.status() == 128 + signal.SIGKILL


def test_the_fleet_files_flags_come_last_and_win() -> None:
    entry = FleetModel(
        name="judge",
        protocol="sdrm",
        weights="some/model",
        revision="abc",
        context_length=4096,
        gpus=2,
        launch=("--x", "1"),
    )
    given = flags(entry, 31000)
    pairs = dict(itertools.pairwise(given))
    assert given[-2:] == ("--x", "1")
    assert pairs["--model-path"] == "some/model"
    assert (pairs["--revision"], pairs["--context-length"], pairs["--tp-size"]) == ("abc", "4096", "2")
    assert (pairs["--served-model-name"], pairs["--port"], pairs["--host"]) == ("judge", "31000", "127.0.0.1")
    assert (pairs["--schedule-policy"], pairs["--max-queued-requests"]) == ("lpm", "128")
    assert "--is-embedding" not in given


def test_a_classifier_is_launched_as_one() -> None:
    entry = FleetModel(name="rm", protocol="reward", weights="some/model", launch=("--x", "1"))
    given = flags(entry, 31000, classifies=True)
    assert "--is-embedding" in given
    assert given[-2:] == ("--x", "1")
