"""A database that cannot write for a while, and parts whose clocks are five minutes wrong."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import text

from embedded.postgres import Postgres
from services.foundation.database import transaction
from tests.factories import MODEL, comparisons
from tests.invariants import check_ended_job
from tests.parts import LONG_LEASE, PATIENCE, Parts, eventually

pytestmark = pytest.mark.chaos

ITEMS = 300
SLOW = ("--service-time", "lognormal:0.2,0.5", "--slots", "16")
FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END $$
"""
TOO_LARGE = """
CREATE FUNCTION too_large() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.seq = 7 AND NEW.completion IS NOT NULL THEN
        RAISE EXCEPTION 'row is too big' USING ERRCODE = 'program_limit_exceeded';
    END IF;
    RETURN NEW;
END $$
"""
GROWING = ("trace", "opinion", "verdict", "item")
PUT_OFF = 60.0  # seconds after which a conclusion that failed is tried again
FIVE_MINUTES = 300
RESCUED = 60.0  # seconds after a death: a lease, and what a busy machine takes
MOST_COMPLAINTS = 200  # lines of a worker about one outage of seconds


@contextmanager
def full_disk(parts: Parts, *tables: str) -> Iterator[None]:
    """Nothing more fits into these tables."""
    with transaction(parts.engine) as connection:
        connection.execute(text(FULL))
    for table in tables:
        trigger = f"CREATE TRIGGER no_space BEFORE INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION full_disk()"
        with transaction(parts.engine) as connection:
            connection.execute(text(trigger))
    yield
    with transaction(parts.engine) as connection:
        connection.execute(text("DROP FUNCTION full_disk CASCADE"))


@contextmanager
def read_only(parts: Parts, server: Postgres) -> Iterator[None]:
    """All sessions, those that are there too, can only read."""
    name = parts.engine.url.database
    assert name is not None
    alter = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")

    def become(how: str) -> None:
        with server.connect() as connection:
            connection.execute(alter.format(sql.Identifier(name), sql.SQL(how)))
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])

    become("on")
    yield
    become("off")


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("full", psycopg.errors.DiskFull),
        pytest.param("read-only", psycopg.errors.ReadOnlySqlTransaction, marks=pytest.mark.slow),
    ],
)
def test_a_database_that_cannot_write_for_a_while(
    parts: Parts, postgres_server: Postgres, free_port: Callable[[], int], kind: str, error: type[Exception]
) -> None:
    parts.settings |= LONG_LEASE
    parts.runtime(*SLOW)
    maintenance, worker = parts.maintenance(), parts.worker()
    url = f"http://127.0.0.1:{(port := free_port())}/v1/jobs"
    parts.api(port)
    headers = {"Authorization": f"Bearer {parts.key('bolt')}"}
    body = {"kind": "judgement", "judges": [MODEL], "items": comparisons(10)}
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)
    with full_disk(parts, *GROWING) if kind == "full" else read_only(parts, postgres_server):
        eventually(lambda: error.__name__ in worker.log.read_text(), "the worker says what is wrong")
        refused = httpx.post(url, json=body, headers=headers, timeout=60)
        assert (refused.status_code, refused.json()["code"]) == (503, "database_unavailable")
        assert refused.headers["Retry-After"]
        heard = parts.rows("SELECT count(*) FROM verdict")
        complaints = worker.log.read_text().count(error.__name__)
        eventually(lambda: worker.log.read_text().count(error.__name__) > complaints, "it tries again")
        assert parts.rows("SELECT count(*) FROM verdict") == heard
    assert httpx.post(url, json=body, headers=headers, timeout=60).status_code == httpx.codes.ACCEPTED
    for row in parts.rows("SELECT id FROM job"):
        parts.wait_until_ended(row["id"])
        assert check_ended_job(parts.engine, row["id"])["status"] == "completed"
    assert maintenance.ended() is worker.ended() is None
    assert worker.log.read_text().count(error.__name__) < MOST_COMPLAINTS
    assert parts.rows("SELECT max(fence) < 4 AS calm FROM chunk") == [{"calm": True}]  # none goes round and round


@pytest.mark.slow
def test_a_panel_is_joined_once_the_disk_has_room_again(parts: Parts) -> None:
    parts.runtime("--model", parts.fleet.models[MODEL].weights)  # which both judges have
    for judge in (MODEL, "other"):
        parts.worker(judge)
    with full_disk(parts, "verdict"):
        maintenance = parts.maintenance()
        job_id = parts.queue(parts.tenant(), ITEMS, judges=[MODEL, "other"])
        eventually(lambda: "DiskFull" in maintenance.log.read_text(), "a panel cannot be joined")
    parts.wait_until_ended(job_id, PUT_OFF + PATIENCE)
    assert check_ended_job(parts.engine, job_id)["status"] == "completed"


@pytest.mark.slow
def test_a_row_that_never_fits_fails_its_item_alone(parts: Parts) -> None:
    parts.settings |= LONG_LEASE
    with transaction(parts.engine) as connection:
        connection.execute(text(TOO_LARGE))
        trigger = "CREATE TRIGGER too_large BEFORE INSERT ON trace FOR EACH ROW EXECUTE FUNCTION too_large()"
        connection.execute(text(trigger))
    parts.runtime()
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), 40)
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["succeeded"], job["failed"]) == (39, 1)
    failed = parts.rows("SELECT seq, error_code FROM verdict WHERE status = 'failed'")
    assert failed == [{"seq": 7, "error_code": "poisoned"}]
    assert worker.ended() is None


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [FIVE_MINUTES, -FIVE_MINUTES])
def test_clocks_that_are_wrong(parts: Parts, seconds: int) -> None:
    parts.settings |= LONG_LEASE
    wrong = ("--clock", str(seconds))
    parts.runtime(*SLOW)
    parts.start("maintenance", "tests.fakes.doomed", *wrong, "--", "workers", "maintenance")
    worker = parts.doomed_worker(*wrong)
    (soon,) = parts.rows("SELECT now() + interval '4 minutes' AS deadline")
    job_id = parts.queue(parts.tenant(), ITEMS, deadline=soon["deadline"].isoformat())
    parts.wait_until_heard(job_id, ITEMS // 2)
    assert parts.rows("SELECT 1 FROM chunk WHERE fence > 1 OR deaths > 0") == []  # nothing was taken for lapsed
    lease = "SELECT 1 FROM worker WHERE lease_until BETWEEN now() AND now() + interval '20 seconds'"
    assert parts.rows(lease)
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: parts.rows("SELECT 1 FROM death"), "its chunks are rescued", RESCUED)
    parts.doomed_worker(*wrong)
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)
