"""A PostgreSQL and a Valkey of a test's own, which it may stop, kill and start again on the same data."""

import os
import signal
from pathlib import Path

from embedded import postgres, valkey
from embedded.postgres import Postgres
from embedded.processes import Child
from embedded.valkey import Valkey
from tests.parts import eventually


class OwnPostgres:
    """A PostgreSQL. `server` is the one that runs, or ran last; its URLs hold for all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server: Postgres
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.server = postgres.start(
            self._folder / "postgres",
            self._folder,
            self._folder / "postgres.log",
            settings={"fsync": "off", "shared_buffers": "64MB"},  # what is written survives any death but the machine's
        )

    def end(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT ends its sessions in order, SIGQUIT lets them drop what they do, as a crash would."""
        _end(self.server.child, how)

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it and start it again."""
        self.end(how)
        self.start()


class OwnValkey:
    """A Valkey. `server` is the one that runs, or ran last; its URL holds for all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server: Valkey
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        folder = self._folder
        self.server = valkey.start(folder / "valkey", folder / "valkey.sock", folder / "valkey.log")

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it."""
        _end(self.server.child, how)

    def restart(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it and start it again: all connections are cut."""
        self.end(how)
        self.start()


def _end(child: Child, how: signal.Signals) -> None:
    if child.ended() is None:
        os.kill(child.pid, how)
        eventually(child.ended, f"{child.name} ends")
