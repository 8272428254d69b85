"""Children end with whoever started them, and say why when they end by themselves."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embedded.places import CHECKOUT
from embedded.processes import ChildEnded, EmbeddedError, run, spawn
from tests.parts import eventually

SLEEPER = [sys.executable, "-c", "import time; print('asleep', flush=True); time.sleep(600)"]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but is not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_child_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    starter = (
        "import sys, time; from pathlib import Path; from embedded.processes import spawn\n"
        f"child = spawn('child', {SLEEPER!r}, log=Path(sys.argv[1]), cwd=Path('/'))\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", starter, tmp_path / "log"]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        assert alive(pid)
        started.kill()
    eventually(lambda: not alive(pid), "the child of a killed starter is gone")


def test_stop_takes_along_what_the_child_started(tmp_path: Path) -> None:
    shell = ["sh", "-c", "sleep 600 & echo $!; trap 'exit 3' TERM; wait"]
    child = spawn("shell", shell, log=tmp_path / "log", cwd=tmp_path)
    child.wait_until(lambda: (tmp_path / "log").read_text().endswith("\n"), 30)
    grandchild = int((tmp_path / "log").read_text())
    assert child.stop() == 3
    eventually(lambda: not alive(grandchild), "the grandchild is gone")


def test_a_child_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    child = spawn("deaf", [sys.executable, "-c", deaf], log=tmp_path / "log", cwd=tmp_path)
    child.wait_until(lambda: "deaf" in (tmp_path / "log").read_text(), 30)
    assert child.stop(grace_seconds=0.1) == -signal.SIGKILL


def test_a_child_that_ends_by_itself_is_reported_with_its_log(tmp_path: Path) -> None:
    child = spawn("early", ["sh", "-c", "echo no such thing; exit 7"], log=tmp_path / "log", cwd=tmp_path)
    with pytest.raises(ChildEnded, match=r"early ended with status 7; .*\nno such thing"):
        child.wait_until(lambda: False, 30)
    assert child.stop() == 7


def test_a_child_that_never_gets_ready_is_reported_with_its_log(tmp_path: Path) -> None:
    child = spawn("slow", SLEEPER, log=tmp_path / "log", cwd=tmp_path)
    child.wait_until(lambda: "asleep" in (tmp_path / "log").read_text(), 30)
    with pytest.raises(EmbeddedError, match=r"slow was not ready within 0 s; .*\nasleep"):
        child.wait_until(lambda: False, 0.2)
    child.stop()


def test_of_a_log_that_earlier_ones_wrote_its_own_lines_alone_are_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("an old fault\n")
    child = spawn("early", ["sh", "-c", "echo a new one; exit 7"], log=log, cwd=tmp_path)
    with pytest.raises(ChildEnded) as ended:
        child.wait_until(lambda: False, 30)
    assert str(ended.value) == f"early ended with status 7; the end of {log}:\na new one"
    assert log.read_text() == "an old fault\na new one\n"

    mute = spawn("mute", ["sh", "-c", "exit 3"], log=log, cwd=tmp_path)
    with pytest.raises(ChildEnded) as ended:
        mute.wait_until(lambda: False, 30)
    assert str(ended.value) == f"mute ended with status 3; it wrote nothing to {log}"


def test_a_failing_command_says_what_it_printed(tmp_path: Path) -> None:
    assert run("echo", ["echo", "fine"], cwd=tmp_path) == "fine\n"
    with pytest.raises(EmbeddedError, match="listing failed with status 2:\nbroken"):
        run("listing", ["sh", "-c", "echo broken >&2; exit 2"], cwd=tmp_path)


def test_children_have_a_session_of_their_own(tmp_path: Path) -> None:
    child = spawn("sleeper", SLEEPER, log=tmp_path / "log", cwd=tmp_path)
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    child.stop()
