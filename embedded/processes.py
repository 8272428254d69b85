"""Child processes that never outlive the process that started them.

Guarantee: a child started here gets a signal from the kernel when its starter ends, however it ends; `stop` returns
only when the child is gone. Linux's parent-death signal belongs to the *thread* that forked, so start children from a
thread that lives as long as they should: the main thread. Elsewhere than on Linux only `stop` ends a child.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.05
_TAIL_CHARACTERS = 2000


class EmbeddedError(Exception):
    """A part of the embedded stack could not be installed, started or reached. The message says which and why."""


class ChildEnded(EmbeddedError):
    """A child ended though it should run. The message holds its exit status and the end of its log."""


def die_with_parent(sig: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn` with which the child receives `sig` when the thread that forked it ends (Linux; else nothing)."""
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None).prctl  # loaded here: between fork and exec nothing should be
    parent = os.getpid()

    def apply() -> None:
        prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0)
        if os.getppid() != parent:  # it ended between fork and prctl
            os._exit(1)

    return apply


@dataclass(frozen=True, slots=True)
class Child:
    """A running child, the leader of its own session. `stop_signal` is how it is asked to end.

    Its output stands in `log` from the byte `since` on, behind that of the ones before it.
    """

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    since: int
    stop_signal: signal.Signals

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group and session."""
        return self.popen.pid

    def ended(self) -> ChildEnded | None:
        """None while it runs, else why it should not have ended."""
        if self._running():
            return None
        return ChildEnded(f"{self.name} ended with status {self._reap()}; {self._written()}")

    def wait_until(self, ready: Callable[[], bool], seconds: float, every: float = _POLL_SECONDS) -> None:
        """Return when `ready()` is true; it is asked every so many seconds.

        Raises:
            ChildEnded: it ended instead.
            EmbeddedError: it was not ready within `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if (ended := self.ended()) is not None:
                raise ended
            if time.monotonic() > deadline:
                raise EmbeddedError(f"{self.name} was not ready within {seconds:.0f} s; {self._written()}")
            time.sleep(every)

    def stop(self, grace_seconds: float = 30) -> int:
        """Ask it to end, kill whatever of its process group is left after `grace_seconds`, return its exit status."""
        if self._running():
            self.popen.send_signal(self.stop_signal)
            deadline = time.monotonic() + grace_seconds
            while self._running() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        return self._reap()

    def _written(self) -> str:
        """The end of what it wrote, and of nothing that an earlier one did."""
        with self.log.open("rb") as file:
            file.seek(self.since)
            told = file.read().decode(errors="replace").strip()
        return f"the end of {self.log}:\n{told[-_TAIL_CHARACTERS:]}" if told else f"it wrote nothing to {self.log}"

    def _running(self) -> bool:
        if self.popen.returncode is not None:
            return False
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def _reap(self) -> int:
        if self.popen.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)  # before it is reaped: until then its number cannot be another's
        return self.popen.wait()


def spawn(
    name: str,
    command: Sequence[str | Path],
    *,
    log: Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
    death_signal: signal.Signals = signal.SIGKILL,
    **options: Any,
) -> Child:
    """Start `command` in a session of its own, with its output appended to `log`.

    A terminal's Ctrl-C so reaches the starter alone, which stops its children in the order that suits them. `env`
    replaces the environment, the kernel sends `death_signal` when the starter ends, and `options` go to `Popen`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    options.setdefault("preexec_fn", die_with_parent(death_signal))
    with log.open("ab") as file:
        since = file.tell()
        popen: subprocess.Popen[bytes] = subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            **options,
        )
    return Child(name, popen, log, since, stop_signal)


def run(
    name: str, command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str] | None = None, **options: Any
) -> str:
    """Run `command` to its end and return what it printed. It ends with its starter; `options` are as for `spawn`.

    Raises:
        EmbeddedError: it failed; the message holds the end of its output.
    """
    options.setdefault("preexec_fn", die_with_parent(signal.SIGKILL))
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    if done.returncode:
        raise EmbeddedError(f"{name} failed with status {done.returncode}:\n{done.stdout[-_TAIL_CHARACTERS:]}")
    return done.stdout
