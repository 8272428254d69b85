"""PostgreSQL and Valkey out of wheels: as root and as anybody, on their own data again, and never left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import redis

from embedded import postgres, valkey
from embedded.places import CHECKOUT
from embedded.processes import EmbeddedError
from tests.integration.test_embedded_processes import alive
from tests.parts import eventually

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


def kill(server: postgres.Postgres | valkey.Valkey) -> None:
    """End a server as a power cut would."""
    server.child.popen.kill()
    server.child.popen.wait()


def start_postgres(folder: Path, name: str = "sockets", *, user_namespace: bool = True) -> postgres.Postgres:
    return postgres.start(folder / "postgres", folder / name, folder / "postgres.log", user_namespace=user_namespace)


@pytest.mark.parametrize("user_namespace", [True, pytest.param(False, marks=as_root)])
def test_postgres_goes_on_with_its_data_after_it_was_killed(short_folder: Path, user_namespace: bool) -> None:
    short_folder.chmod(0o755)  # another account must reach the data
    first = start_postgres(short_folder, "a", user_namespace=user_namespace)
    url = first.ensure_database("assizes")
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    kill(first)
    second = start_postgres(short_folder, "b", user_namespace=user_namespace)
    try:
        with psycopg.connect(second.ensure_database("assizes").replace("+psycopg", "")) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
    finally:
        second.stop()
    assert second.child.popen.returncode == 0


def test_postgres_is_not_misled_by_a_pid_that_is_now_another_processs(short_folder: Path) -> None:
    kill(start_postgres(short_folder, "a"))
    pid_file = short_folder / "postgres" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getppid()), *lines[1:]]) + "\n")
    start_postgres(short_folder, "b").stop()


def test_a_second_postgres_on_the_same_data_is_refused(short_folder: Path) -> None:
    server = start_postgres(short_folder, "a")
    try:
        with pytest.raises(EmbeddedError, match=f"already running on .* \\(pid {server.child.pid}\\)"):
            start_postgres(short_folder, "b")
        server.ensure_database("still_there")
    finally:
        server.stop()


def test_a_postgres_that_cannot_start_says_why(short_folder: Path) -> None:
    with pytest.raises(EmbeddedError, match='invalid value for parameter "shared_buffers"'):
        postgres.start(
            short_folder / "postgres", short_folder, short_folder / "log", settings={"shared_buffers": "many"}
        )


def test_a_socket_path_that_is_too_long_is_refused(short_folder: Path) -> None:
    with pytest.raises(EmbeddedError, match="too long"):
        start_postgres(short_folder, "s" * 90)
    with pytest.raises(EmbeddedError, match="too long"):
        valkey.start(short_folder / "valkey", short_folder / ("s" * 90), short_folder / "log")


def test_valkey_goes_on_with_its_data_after_it_was_killed(short_folder: Path) -> None:
    place = (short_folder / "valkey", short_folder / "valkey.sock", short_folder / "valkey.log")
    first = valkey.start(*place)
    with redis.Redis(unix_socket_path=str(first.socket)) as client:
        client.rpush("queue", "bell")
    kill(first)
    second = valkey.start(*place)
    try:
        with redis.Redis(unix_socket_path=str(second.socket)) as client:
            assert client.lrange("queue", 0, -1) == [b"bell"]
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    finally:
        second.stop()
    assert second.child.popen.returncode == 0


SERVE = """
import os, sys, time
from pathlib import Path
import psycopg, redis
from embedded import postgres, valkey

def start(folder):
    folder.mkdir()
    return (
        postgres.start(folder / "postgres", folder, folder / "postgres.log"),
        valkey.start(folder / "valkey", folder / "valkey.sock", folder / "valkey.log"),
    )

folder = Path(sys.argv[1])
if len(sys.argv) > 2:
    for server in start(folder / "root"):  # loads every module that only root may be able to read
        server.stop()
    uid = int(sys.argv[2])
    os.chown(folder, uid, uid)
    os.setgroups([]), os.setgid(uid), os.setuid(uid)
servers = start(folder / "mine")
print(*(server.child.pid for server in servers), flush=True)
sys.stdin.read()
for server in servers:
    server.stop()
    assert server.child.popen.returncode == 0
"""


def serving(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVE, folder, *arguments],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@as_root
def test_both_run_as_an_ordinary_user(short_folder: Path) -> None:
    nobody = 65534
    with serving(short_folder, str(nobody)) as starter:
        assert starter.stdout is not None and starter.stdin is not None
        pids = [int(pid) for pid in starter.stdout.readline().split()]
        assert [Path(f"/proc/{pid}").stat().st_uid for pid in pids] == [nobody, nobody]
        starter.stdin.close()
        assert starter.wait(60) == 0


def test_both_end_when_their_starter_is_killed(short_folder: Path) -> None:
    with serving(short_folder) as starter:
        assert starter.stdout is not None
        pids = [int(pid) for pid in starter.stdout.readline().split()]
        assert [alive(pid) for pid in pids] == [True, True]
        starter.send_signal(signal.SIGKILL)
    eventually(lambda: not any(alive(pid) for pid in pids), "both servers are gone")
