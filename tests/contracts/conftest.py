"""One contract, two servers: the scripted runtime and a real SGLang, both with two slots and a queue of four.

Guarantee: a test that asks for `server` runs against both, and finds nobody else on it. Servers end with the session.
"""

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest

from embedded import models
from embedded.places import CHECKOUT
from embedded.processes import spawn
from services.foundation.fleet import FleetModel
from tests.contracts.server import CONTEXT, FLOAT32, PATIENCE_S, QUEUE, SLOTS, STORY, Server
from workers.runtime.launch import launch

OnSGLang = Callable[..., AbstractContextManager[Server]]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def scripted(folder: Path, *flags: str) -> Iterator[Server]:
    """A scripted runtime that takes long over a story."""
    port, weights = _free_port(), models.make("scripted")
    command = [sys.executable, "-m", "embedded", "scripted", "--port", str(port), "--tokenizer", str(weights)]
    command += ["--slots", str(SLOTS), "--max-queued-requests", str(QUEUE), "--context-length", str(CONTEXT)]
    child = spawn("the scripted runtime", [*command, *flags], log=folder / f"scripted-{port}.log", cwd=CHECKOUT)
    server = Server(f"http://127.0.0.1:{port}", weights, scripted=True)
    try:
        child.wait_until(lambda: _ready(server), PATIENCE_S)
        server.post("/scripted/script", [{"match": STORY, "latency_s": 60.0}]).raise_for_status()
        yield server
    finally:
        child.stop()


@pytest.fixture(scope="session")
def on_sglang(sglang_python: Path, server_folder: Path, sglang_environment: dict[str, str]) -> OnSGLang:
    """A function that serves one of the small models on a real SGLang for the length of a `with` block."""

    @contextmanager
    def serving(name: models.ModelName, *flags: str, classifies: bool = False) -> Iterator[Server]:
        weights = models.make(name)
        limits = ("--max-running-requests", str(SLOTS), "--max-queued-requests", str(QUEUE))
        model = FleetModel(
            name=name,
            protocol="reward" if classifies else "sdrm",
            weights=str(weights),
            context_length=CONTEXT,
            gpus=0,
            python=str(sglang_python),
            launch=("--device", "cpu", "--max-total-tokens", "16384", "--sleep-on-idle", *limits, *flags),
        )
        launched = launch(
            model,
            port=_free_port(),
            log=server_folder / f"{name}.log",
            classifies=classifies,
            start_s=600,
            environment=sglang_environment,
        )
        try:
            yield Server(launched.url, weights, scripted=False)
        finally:
            launched.stop()

    return serving


@pytest.fixture(scope="session")
def scripted_server(server_folder: Path) -> Iterator[Server]:
    """The scripted runtime."""
    with scripted(server_folder) as server:
        yield server


@pytest.fixture(scope="session")
def scripted_classifier(server_folder: Path) -> Iterator[Server]:
    """The scripted runtime as a classifier."""
    with scripted(server_folder, "--is-embedding") as server:
        yield server


@pytest.fixture(scope="session")
def real_server(on_sglang: OnSGLang) -> Iterator[Server]:
    """A real SGLang that serves a tiny Qwen3 with random weights."""
    with on_sglang("tiny-qwen3") as server:
        yield server


@pytest.fixture(scope="session")
def real_classifier(on_sglang: OnSGLang) -> Iterator[Server]:
    """A real SGLang that serves a tiny reward model with random weights."""
    with on_sglang("tiny-rm-0", *FLOAT32, classifies=True) as server:
        yield server


@pytest.fixture(scope="session")
def restarted_classifier(on_sglang: OnSGLang) -> Iterator[Server]:
    """Another start of that server."""
    with on_sglang("tiny-rm-0", *FLOAT32, classifies=True) as server:
        yield server


@pytest.fixture(params=["scripted", pytest.param("sglang", marks=pytest.mark.sglang)])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Each of the two, idle before and after."""
    server: Server = request.getfixturevalue("scripted_server" if request.param == "scripted" else "real_server")
    server.wait_until_idle()
    yield server
    server.wait_until_idle()


@pytest.fixture(params=["scripted", pytest.param("sglang", marks=pytest.mark.sglang)])
def classifier(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Each of the two as a classifier, idle before and after."""
    name = "scripted_classifier" if request.param == "scripted" else "real_classifier"
    classifier: Server = request.getfixturevalue(name)
    classifier.wait_until_idle()
    yield classifier
    classifier.wait_until_idle()


def _ready(server: Server) -> bool:
    try:
        return server.get("/ready").status_code == 200
    except httpx.TransportError:
        return False
