"""One contract, two servers: the scripted runtime and a real SGLang, both with two slots and a queue of four.

Guarantee: a test that asks for `server` runs against both, and finds nobody else on it. Servers end with the session.
"""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from embedded import models
from embedded.places import CHECKOUT
from embedded.processes import spawn
from services.foundation.fleet import FleetModel
from tests.contracts.server import CONTEXT, PATIENCE_S, QUEUE, SLOTS, STORY, Server
from workers.runtime.launch import launch


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def scripted_server(server_folder: Path) -> Iterator[Server]:
    """The scripted runtime."""
    port, weights = _free_port(), models.make("scripted")
    command = [sys.executable, "-m", "embedded", "scripted", "--port", str(port), "--tokenizer", str(weights)]
    command += ["--slots", str(SLOTS), "--max-queued-requests", str(QUEUE), "--context-length", str(CONTEXT)]
    child = spawn("the scripted runtime", command, log=server_folder / "scripted.log", cwd=CHECKOUT)
    server = Server(f"http://127.0.0.1:{port}", weights, scripted=True)
    try:
        child.wait_until(lambda: _ready(server), PATIENCE_S)
        server.post("/scripted/script", [{"match": STORY, "latency_s": 60.0}]).raise_for_status()
        yield server
    finally:
        child.stop()


@pytest.fixture(scope="session")
def real_server(sglang_python: Path, server_folder: Path, sglang_environment: dict[str, str]) -> Iterator[Server]:
    """A real SGLang that serves a tiny Qwen3 with random weights."""
    weights = models.make("tiny-qwen3")
    model = FleetModel(
        name="tiny-qwen3",
        protocol="sdrm",
        weights=str(weights),
        context_length=CONTEXT,
        gpus=0,
        python=str(sglang_python),
        launch=(
            *("--device", "cpu", "--max-total-tokens", "16384", "--sleep-on-idle"),
            *("--max-running-requests", str(SLOTS), "--max-queued-requests", str(QUEUE)),
        ),
    )
    launched = launch(
        model,
        port=_free_port(),
        log=server_folder / "tiny-qwen3.log",
        start_s=600,
        environment=sglang_environment,
    )
    try:
        yield Server(launched.url, weights, scripted=False)
    finally:
        launched.stop()


@pytest.fixture(params=["scripted", pytest.param("sglang", marks=pytest.mark.sglang)])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Each of the two, idle before and after."""
    server: Server = request.getfixturevalue("scripted_server" if request.param == "scripted" else "real_server")
    server.wait_until_idle()
    yield server
    server.wait_until_idle()


def _ready(server: Server) -> bool:
    try:
        return server.get("/ready").status_code == 200
    except httpx.TransportError:
        return False
