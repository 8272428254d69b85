"""PostgreSQL restarted while workers write, and killed between a commit and its answer: every count is exact."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from embedded.postgres import Postgres
from tests.invariants import check_ended_job
from tests.parts import Parts, eventually
from tests.servers import OwnPostgres

pytestmark = pytest.mark.chaos

ITEMS = 300
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
