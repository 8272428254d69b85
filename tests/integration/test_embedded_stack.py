"""`python -m embedded up`: the whole service as a person starts it, with the scripted runtime in SGLang's place."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from embedded.places import CHECKOUT
from embedded.processes import Child, ChildEnded
from tests.conftest import Processes
from tests.integration.test_embedded_processes import alive
from tests.parts import PATIENCE, eventually


def left_of(home: Path) -> list[int]:
    """Every live process that was started for `home`, by what it runs, in which folder and with which settings."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            traces = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            where = os.fsencode((process / "cwd").readlink())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if any(os.fsencode(home) in trace for trace in (*traces, where)) and alive(int(process.name)):
            found.append(int(process.name))
    return found


class Up:
    """One `up` on a home of its own."""

    def __init__(self, processes: Processes, home: Path) -> None:
        self._processes = processes
        self.home = home
        self.process: Child

    def start(self, *arguments: str) -> dict[str, Any]:
        """Start it; what it tells of itself once everything answers."""
        command = [sys.executable, "-m", "embedded", "up", "--runtime", "scripted", "--home", str(self.home)]
        self.process = self._processes.start("up", [*command, *(arguments or ("--port", "0"))])
        self.process.wait_until(lambda: self.process.pid in self.described_pids(), PATIENCE * 2)
        description: dict[str, Any] = json.loads((self.home / "up.json").read_text())
        return description

    def described_pids(self) -> list[int]:
        """Of the processes that the home tells of: those of a killed one until the next is ready."""
        try:
            return list(json.loads((self.home / "up.json").read_text())["pids"].values())
        except FileNotFoundError:
            return []

    def ended(self) -> int:
        """Its exit status, once it and everything that it started are gone."""
        eventually(lambda: self.process.ended() is not None, "up has ended")
        eventually(lambda: not left_of(self.home), "no process is left")
        return self.process.popen.wait()


@pytest.fixture
def up(processes: Processes, tmp_path: Path) -> Up:
    return Up(processes, tmp_path / "home")


def client(description: dict[str, Any]) -> httpx.Client:
    key = Path(description["api_key_file"]).read_text().strip()
    return httpx.Client(base_url=description["url"], headers={"Authorization": f"Bearer {key}"}, trust_env=False)


def test_however_it_ends_nothing_is_left_and_its_next_start_goes_on(up: Up, processes: Processes) -> None:
    first = up.start()
    assert set(first["pids"]) == {"up", "PostgreSQL", "Valkey", "scripted", "api", "worker-smollm2", "maintenance"}
    for secret in ("api_key_file", "webhook_secret_file"):
        assert Path(first[secret]).stat().st_mode & 0o777 == 0o600
    item = {
        "custom_id": "one",
        "context": [{"role": "user", "content": "Name a prime number."}],
        "candidates": [{"content": "Seven."}, {"content": "Nine."}],
    }
    with client(first) as api:
        job = api.post("/v1/jobs", json={"kind": "judgement", "judges": ["smollm2"], "items": [item]}).json()
        eventually(lambda: api.get(f"/v1/jobs/{job['id']}").json()["status"] == "completed", "the job is done")
    assert first["url"] in up.process.log.read_text()
    assert "scripted runtime" in up.process.log.read_text()

    sockets = (up.home / "sockets").resolve()
    os.kill(up.process.pid, signal.SIGINT)
    assert up.ended() == 0
    assert not (up.home / "up.json").exists()
    assert not sockets.exists()

    second = up.start()
    with pytest.raises(ChildEnded, match="already running on"):
        Up(processes, up.home).start()
    sockets = (up.home / "sockets").resolve()
    os.kill(up.process.pid, signal.SIGKILL)
    up.ended()
    assert not any(alive(pid) for pid in second["pids"].values())

    third = up.start()
    assert not sockets.exists(), "the sockets of the killed one are still there"
    with client(third) as api:
        assert api.get(f"/v1/jobs/{job['id']}").json()["counts"]["succeeded"] == 1
        assert api.get("/v1/models").json()["data"][0]["health"] == "ready"

    os.kill(third["pids"]["worker-smollm2"], signal.SIGKILL)
    assert up.ended() == 1, "a part that ends by itself ends the whole"
    assert f"worker-smollm2 ended with status {-signal.SIGKILL}" in up.process.log.read_text()


def test_told_to_stop_while_it_starts_it_leaves_nothing(up: Up, processes: Processes) -> None:
    command = [sys.executable, "-m", "embedded", "up", "--runtime", "scripted", "--home", str(up.home), "--port", "0"]
    up.process = processes.start("up", command)
    eventually((up.home / "data-scripted").exists, "it has begun")
    os.kill(up.process.pid, signal.SIGTERM)
    assert up.ended() == 0


def test_a_taken_port_is_refused_before_anything_starts(up: Up, free_port: Callable[[], int]) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ChildEnded, match=f"port {port} is taken"):
        up.start("--port", str(port))
    assert not up.home.exists()


def refused(home: Path, *arguments: str) -> str:
    """What `up` says when it starts nothing."""
    command = [sys.executable, "-m", "embedded", "up", "--home", str(home), "--port", "0", *arguments]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert not home.exists()
    return done.stdout.removeprefix("starting ...\n") + done.stderr


@pytest.mark.parametrize(
    ("fleet", "told"),
    [
        ("[models.m]\nprotocol = 'sdrm'\n", "the fleet file {file} is wrong: models.m.weights: Field required"),
        (
            "[models.m]\nprotocol = 'sdrn'\nweights = 'w'\n",
            "the model m of the fleet file {file}: no protocol is called sdrn; there are genrm, prompted, reappraisal, "
            "reward, sdrm",
        ),
        (
            "[models.m]\nprotocol = 'sdrm'\nweights = 'w'\n[committees.c]\nmembers = ['m']\n",
            "the committee c cannot have m: it is neither a reward model nor a judge that grades texts one by one",
        ),
        (
            "[models.m]\nprotocol = 'sdrm'\nweights = 'w'\noptions = { samples = 0 }\n",
            "the options of the model m are wrong: samples: Input should be greater than or equal to 1",
        ),
    ],
)
def test_a_wrong_fleet_file_is_refused_on_one_line_before_anything_starts(
    tmp_path: Path, fleet: str, told: str
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(fleet)
    assert refused(tmp_path / "home", "--fleet", str(file)) == f"embedded: {told.format(file=file)}\n"


def test_a_missing_fleet_file_is_refused_and_stand_ins_serve_none(tmp_path: Path) -> None:
    file, home = tmp_path / "none.toml", tmp_path / "home"
    assert refused(home, "--fleet", str(file)) == (
        f"embedded: the fleet file {file} cannot be read: No such file or directory\n"
    )
    assert refused(home, "--fleet", str(file), "--runtime", "scripted") == (
        "embedded: scripted runtimes stand in for the shipped fleets alone, FLEET=judging and FLEET=reappraising; the "
        f"models of {file} need runtimes of their own: leave RUNTIME=scripted out\n"
    )
