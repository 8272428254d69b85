"""A worker whose real SGLang dies or stands still: it starts another, the job completes, and nothing is left behind."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from services.foundation.fleet import FleetModel
from tests.factories import MODEL
from tests.invariants import check_ended_job
from tests.parts import Parts, eventually
from tests.processes import alive, running, session

PATIENCE_S = 600.0  # on a busy machine a server takes minutes to start
ITEMS = 6


def main_of(leader: int) -> int:
    """The main process of a server: the only child of the leash, which leads the session."""
    return int(Path(f"/proc/{leader}/task/{leader}/children").read_text())


def scheduler(main: int) -> int:
    """The process of a server that runs the model."""
    (pid,) = (
        pid for pid in session(os.getsid(main)) if b"sglang::scheduler" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return pid


def shared_memory() -> set[Path]:
    """What is in shared memory and not PostgreSQL's."""
    return {file for file in Path("/dev/shm").iterdir() if not file.name.startswith("PostgreSQL")}


def unknown_token(main: int, port: str) -> None:
    """Send an id that the vocabulary does not have, past all of our checks."""
    body = {"input_ids": [9_999_999], "sampling_params": {"max_new_tokens": 1}}
    with suppress(httpx.TransportError):
        httpx.post(f"http://127.0.0.1:{port}/generate", json=body, timeout=60)


def stopped(main: int, port: str) -> None:
    """Have it stand still."""
    os.kill(main, signal.SIGSTOP)


def killed(main: int, port: str) -> None:
    """Kill its main process."""
    os.kill(main, signal.SIGKILL)


def beheaded(main: int, port: str) -> None:
    """Kill the process that runs the model."""
    os.kill(scheduler(main), signal.SIGKILL)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize("strikes", [(unknown_token, stopped), (killed, beheaded)])
def test_a_server_that_breaks_is_started_anew(
    parts: Parts,
    smollm2: FleetModel,
    sglang_environment: dict[str, str],
    strikes: tuple[Callable[[int, str], None], ...],
) -> None:
    launch = [*smollm2.launch, "--max-running-requests", "4"]
    parts.fleet_file.write_text(
        f"""
[models.{MODEL}]
protocol = "sdrm"
weights = {json.dumps(smollm2.weights)}
context_length = {smollm2.context_length}
gpus = 0
python = {json.dumps(smollm2.python)}
launch = {json.dumps(launch)}
options = {{ mode = "direct" }}
""",
        encoding="utf-8",
    )
    parts.settings |= {"RUNTIME_LOGS": str(parts.folder), "RUNTIME_PATIENCE": "15", "RUNTIME_FAILURES": "20"}
    shared = shared_memory()
    parts.maintenance()
    worker = parts.start("worker", "workers", "gpu", "--model", MODEL, env={**parts.environment, **sglang_environment})
    tenant = parts.tenant()
    servers: list[int] = []

    def epochs() -> list[list[str]]:
        rows = parts.rows("SELECT launch_flags FROM runtime_epoch ORDER BY started_at")
        return [row["launch_flags"] for row in rows]

    def ready(number: int) -> bool:
        (row,) = parts.rows("SELECT state, lease_until > now() AS live FROM worker") or [{"live": True}]
        assert row["live"]  # a start that takes longer than a lease costs none
        return len(epochs()) >= number and row["state"] == "ready"

    for number, strike in enumerate(strikes, start=1):
        eventually(lambda number=number: ready(number), f"start {number}", PATIENCE_S)  # type: ignore[misc]
        flags = epochs()[-1]
        port = flags[flags.index("--port") + 1]
        (leader,) = (pid for pid in running("sglang.launch_server") if pid in running(port) and os.getsid(pid) == pid)
        main = main_of(leader)
        servers.extend((main, scheduler(main)))
        job_id = parts.queue(tenant, ITEMS)
        parts.wait_until_heard(job_id, 1)
        strike(main, port)
        parts.wait_until_ended(job_id, PATIENCE_S)
        assert check_ended_job(parts.engine, job_id)["succeeded"] == ITEMS
        eventually(lambda leader=leader: not session(leader), "nothing is left of it")  # type: ignore[misc]
    # whose job may have ended before the last strike fell
    eventually(lambda: len(epochs()) > len(strikes), "it is started anew after each strike", PATIENCE_S)
    assert worker.stop() == 0
    assert not any(alive(pid) for pid in servers)
    assert shared_memory() <= shared
