"""PostgreSQL restarted while workers write, and killed between a commit and its answer: every count is exact."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from embedded.postgres import Postgres
from tests.fakes.launchable import starts
from tests.invariants import check_ended_job
from tests.parts import Parts, eventually
from tests.processes import alive, session
from tests.servers import OwnPostgres

pytestmark = pytest.mark.chaos

ITEMS = 300
DRAIN = 2.0  # seconds for which running calls may go on
LEASE = 3.0  # seconds for which a worker may keep what it cannot write, see `Parts`
MORE = 15.0  # seconds for all else that it takes to stop
SLOW = ("--service-time", "lognormal:0.2,0.5", "--slots", "16")


@pytest.fixture(scope="module")
def postgres_server(own_postgres: OwnPostgres) -> Postgres:
    return own_postgres.server


@contextmanager
def commits_without_answers(server: Postgres) -> Iterator[None]:
    """Every commit is carried out and waits for a standby that there is not before it is answered."""

    def wait_for(standbys: str) -> None:
        with server.connect() as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
            connection.execute("SELECT pg_reload_conf()")

    wait_for("nobody")
    try:
        yield
    finally:
        wait_for("")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_restarted_during_flushes(parts: Parts, own_postgres: OwnPostgres, how: signal.Signals) -> None:
    parts.runtime(*SLOW)
    maintenance, worker = parts.maintenance(), parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    for heard in (10, 100, 200):
        parts.wait_until_heard(job_id, heard)
        own_postgres.restart(how)
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)
    assert maintenance.ended() is worker.ended() is None


def test_killed_between_a_commit_and_its_answer(parts: Parts, own_postgres: OwnPostgres) -> None:
    parts.runtime(*SLOW)
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    unanswered = """
        SELECT 1 FROM pg_stat_activity
        WHERE wait_event = 'SyncRep' AND application_name LIKE 'assizes-worker %' AND datname = current_database()
    """
    for heard in (10, 200):
        parts.wait_until_heard(job_id, heard)
        with commits_without_answers(own_postgres.server):
            eventually(lambda: parts.rows(unanswered), "a worker's commit goes unanswered")
            own_postgres.restart(signal.SIGQUIT)
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)
    assert worker.ended() is None


@pytest.mark.slow
def test_a_worker_that_is_told_to_stop_while_the_database_is_away(parts: Parts, own_postgres: OwnPostgres) -> None:
    parts.settings |= {"DRAIN": str(DRAIN), "RUNTIME_LOGS": str(logs := parts.folder / "logs")}
    parts.enlist_launched(*SLOW)
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)
    own_postgres.end()
    try:
        eventually(lambda: "database_away" in worker.log.read_text(), "the worker misses the database")
        os.kill(worker.pid, signal.SIGTERM)
        eventually(lambda: not alive(worker.pid), "it ends by itself", DRAIN + LEASE + MORE)
        assert session(worker.pid) == []
        (runtime,) = starts(logs)
        assert session(runtime["session"]) == []
    finally:
        own_postgres.start()
    assert worker.stop() == 0
    assert "database_away" in worker.log.read_text().splitlines()[-1]  # its last word
    parts.worker()
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)
