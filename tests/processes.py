"""Processes that are not our children, as /proc shows them."""

import time
from pathlib import Path

PATIENCE_S = 60.0


def alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not."""
    return _state(pid) not in ("", "Z")


def running(program: str) -> list[int]:
    """The processes that were started with `program`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if program.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def session(leader: int) -> list[int]:
    """The running processes of a session."""
    pids = (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if alive(pid) and _fields(pid)[3:4] == [str(leader)]]


def wait_until_gone(pid: int) -> None:
    """Wait for the end of a process and of all of the session that it leads."""
    deadline = time.monotonic() + PATIENCE_S
    while alive(pid) or session(pid):
        assert time.monotonic() < deadline, f"process {pid} outlives its launcher"
        time.sleep(0.05)


def _state(pid: int) -> str:
    return (_fields(pid) or [""])[0]


def _fields(pid: int) -> list[str]:
    """State, parent, group, session ...; nothing when it has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
