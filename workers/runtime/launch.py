"""Start an SGLang server for one model and stop it again.

Guarantee: no process of a launched server outlives the process that launched it, not even one killed with -9, and not
even while it starts; one that dies while starting is reported with the end of its log, never waited for. It sees none
of our settings and none of our modules.
"""

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from services.foundation.fleet import FleetModel
from services.foundation.settings import PREFIX
from workers.runtime.logfile import keep_log

POLL_S = 0.2
LOG_S = 2.0  # how long to wait for the last of what an ended server printed
TAIL_BYTES = 4000
SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - the kernel's name for it, nothing is created there

# SGLang turns lpm scheduling into fcfs above 128 waiting requests: a shorter queue keeps prefixes together
DEFAULT_FLAGS = (
    "--host", "127.0.0.1",
    "--enable-metrics",
    "--enable-cache-report",
    "--schedule-policy", "lpm",
    "--max-queued-requests", "128",
)  # fmt: skip

# Leads the server's session and is its parent: forwards SIGINT, and ends as it does, with 128 + n for a signal n. When
# the end of our pipe closes, because we have died, it kills all of the session: the server's own children ask the
# kernel for that only some seconds after their start. Should it be killed itself, the kernel ends the server.
LEASH = """
import ctypes, os, select, signal, sys
PR_SET_PDEATHSIG = 1
leash, command = os.getpid(), sys.argv[1:]
server = os.fork()
if server == 0:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() == leash:
        os.execv(command[0], command)
    sys.exit("nobody holds the leash")
signal.signal(signal.SIGINT, lambda *_: os.kill(server, signal.SIGINT))
ended = os.pidfd_open(server)
if ended not in select.select([0, ended], [], [])[0]:
    os.killpg(0, signal.SIGKILL)
status = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
sys.exit(status if status >= 0 else 128 - status)
"""


class LaunchFailed(Exception):
    """The server did not come up. `log_tail` is the end of what it wrote to `log`.

    The tail is for a person at a terminal: it may hold secrets, so our own logs name the file instead.
    """

    def __init__(self, message: str, log: Path, log_tail: str = "") -> None:
        super().__init__(f"{message}\n{log_tail}" if log_tail else message)
        self.message = message
        self.log = log
        self.log_tail = log_tail


@dataclass(frozen=True, slots=True)
class LaunchedRuntime:
    """A running server. `process` is the leash that leads its session."""

    url: str
    command: tuple[str, ...]
    log: Path
    process: subprocess.Popen[bytes]
    writer: threading.Thread
    shared: set[Path] = field(default_factory=set)

    @property
    def alive(self) -> bool:
        """Whether its main process runs. One that serves no more may still run for some seconds."""
        return self.status() is None

    def status(self) -> int | None:
        """The exit status of its main process as a shell has it, None while it runs.

        It is not reaped: until `stop` has ended all of its session the number of that cannot be another's.
        """
        if self.process.returncode is not None:
            return self.process.returncode  # negative: `stop` has killed it
        ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status

    def note_shared_memory(self) -> None:
        """Remember what its processes have in shared memory now: of one that was killed it cannot be told any more."""
        self.shared.update(file for pid in _session(self.process.pid) for file in _shared_memory(pid))

    def log_tail(self) -> str:
        """The end of what it wrote."""
        if not self.alive:
            self.writer.join(LOG_S)
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")

    def stop(self, grace_s: float = 15.0) -> None:
        """SIGINT, and SIGKILL to all of its session that is left after the grace. Idempotent.

        What its processes had in shared memory and leave behind is removed: SGLang does not do it.
        """
        if self.process.returncode is None:
            self.note_shared_memory()
            os.kill(self.process.pid, signal.SIGINT)
            deadline = time.monotonic() + grace_s
            # the last to go, after its main process, is the tracker that removes semaphores
            while _session(self.process.pid) and time.monotonic() < deadline:
                time.sleep(POLL_S / 4)
            # before it is reaped: until then its number cannot be another's
            os.killpg(self.process.pid, signal.SIGKILL)
            for file in self.shared:
                file.unlink(missing_ok=True)
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.writer.join(LOG_S)


def launch(
    model: FleetModel,
    *,
    port: int,
    log: Path,
    classifies: bool = False,
    start_s: float = 1800.0,
    environment: Mapping[str, str] | None = None,
    cancelled: threading.Event | None = None,
) -> LaunchedRuntime:
    """Start a server for `model` on 127.0.0.1 and wait until it is ready, at most `start_s` seconds.

    `classifies`: it answers with a classifier's numbers instead of texts.
    Its output is appended to `log`, which is this caller's alone.
    Raises LaunchFailed, also when it is `cancelled` meanwhile.
    """
    if _listening(port):
        raise LaunchFailed(f"port {port} is taken", log)
    python = model.python or sys.executable
    command = (python, "-P", "-m", "sglang.launch_server", *flags(model, port, classifies=classifies))
    leash = (sys.executable, "-I", "-S", "-c", LEASH, *command)
    log.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        leash,
        cwd=log.parent,
        env=_environment(os.environ if environment is None else environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    writer = keep_log(process.stdout, log)
    runtime = LaunchedRuntime(f"http://127.0.0.1:{port}", command, log, process, writer)
    try:
        _wait_until_ready(runtime, port, start_s, cancelled or threading.Event())
    except BaseException:  # a signal too: what was started is stopped
        runtime.stop(grace_s=0.0)
        raise
    return runtime


def flags(model: FleetModel, port: int, *, classifies: bool = False) -> tuple[str, ...]:
    """The arguments of `sglang.launch_server`; the fleet file's come last and so win."""
    return (
        "--model-path", model.weights,
        *(("--revision", model.revision) if model.revision else ()),
        "--served-model-name", model.name,
        "--context-length", str(model.context_length),
        "--port", str(port),
        *(("--tp-size", str(model.gpus)) if model.gpus > 1 else ()),
        *(("--is-embedding",) if classifies else ()),
        *DEFAULT_FLAGS,
        *model.launch,
    )  # fmt: skip


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """Ours without what is ours alone. Without bytecode on disk a start takes twice as long."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"}
    return {name: value for name, value in given.items() if name not in dropped and not name.startswith(PREFIX)}


def _wait_until_ready(runtime: LaunchedRuntime, port: int, start_s: float, cancelled: threading.Event) -> None:
    deadline = time.monotonic() + start_s
    while time.monotonic() < deadline:
        if (status := runtime.status()) is not None:
            message = f"the runtime ended with status {status} while it started"
            raise LaunchFailed(message, runtime.log, runtime.log_tail())
        if _ready(port):
            return
        if cancelled.wait(POLL_S):
            raise LaunchFailed("the start of the runtime was cancelled", runtime.log)
    raise LaunchFailed(f"the runtime was not ready after {start_s:g} s", runtime.log, runtime.log_tail())


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _session(leader: int) -> list[int]:
    """The running processes of a session."""
    running = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (state := _state(entry)) and state[0] != "Z" and int(state[3]) == leader:
            running.append(int(entry.name))
    return running


def _state(process: Path) -> list[str]:
    """A process's state, parent, group, session ...: what follows its name in /proc. Nothing when it has gone."""
    try:
        return (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _shared_memory(pid: int) -> set[Path]:
    """The files in shared memory that a process has mapped: by their inodes, as a semaphore is mapped nameless."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return set()
    fields = (line.split(maxsplit=5) for line in maps.splitlines())
    mapped = {int(field[4]) for field in fields if len(field) == 6 and field[5].startswith(SHARED_MEMORY)}
    return {Path(entry.path) for entry in os.scandir(SHARED_MEMORY) if entry.inode() in mapped} if mapped else set()
