"""Everything stopped at once, started in any order, and replaced one by one under a newer database."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from embedded.places import CHECKOUT
from embedded.postgres import Postgres
from embedded.processes import Child
from embedded.valkey import Valkey
from tests.factories import MODEL, comparisons
from tests.invariants import check_ended_job
from tests.parts import LONG_LEASE, Parts, eventually
from tests.servers import OwnPostgres, OwnValkey

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ITEMS = 300
SLOW = ("--service-time", "lognormal:0.05,0.5", "--slots", "16")
GRACE = 3.0  # seconds between SIGTERM and SIGKILL
# What a release may add while the one before still runs: columns that need not be given, tables.
ADDITIVE = """
from alembic import op
import sqlalchemy as sa

revision, down_revision = "later", {head!r}
branch_labels = depends_on = None

def upgrade():
    for table in ("job", "item", "chunk", "trace", "opinion", "verdict", "worker", "event", "delivery"):
        op.add_column(table, sa.Column("later", sa.Text(), server_default="new"))
    op.create_table("later", sa.Column("id", sa.Integer(), primary_key=True))
"""


@pytest.fixture(scope="module")
def postgres_server(own_postgres: OwnPostgres) -> Postgres:
    return own_postgres.server


@pytest.fixture(scope="module")
def valkey_server(own_valkey: OwnValkey) -> Valkey:
    return own_valkey.server


def post_job(parts: Parts, port: int) -> None:
    """Submit a job and see it through."""
    body = {"kind": "judgement", "judges": [MODEL], "items": comparisons(50)}
    headers = {"Authorization": f"Bearer {parts.key()}"}
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/jobs", json=body, headers=headers, timeout=60)
    assert answer.status_code == httpx.codes.ACCEPTED
    (row,) = parts.rows("SELECT id FROM job ORDER BY id DESC LIMIT 1")
    parts.wait_until_ended(row["id"])
    assert check_ended_job(parts.engine, row["id"])["succeeded"] == 50


def test_sigterm_to_everything_under_load_and_sigkill_after_the_grace(
    parts: Parts, free_port: Callable[[], int]
) -> None:
    parts.settings["DRAIN"] = "60"  # so that SIGKILL finds workers that still drain
    everything = [parts.runtime("--slots", "16"), parts.maintenance(), parts.worker(), parts.worker()]
    parts.script({"match": "the first answer", "latency_s": 0}, {"latency_s": 0, "times": 60}, {"latency_s": 5.0})
    everything.append(parts.api(free_port()))
    job_id = parts.queue(parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 20)
    for child in everything:
        os.kill(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    for child in everything:
        child.stop(max(0.0, deadline - time.monotonic()))
    parts.runtime()
    parts.worker()
    parts.maintenance()
    parts.api(port := free_port())
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)
    post_job(parts, port)


@pytest.mark.parametrize(
    "order",
    [
        ("runtime", "worker", "api", "broker", "database", "maintenance"),
        ("maintenance", "worker", "broker", "api", "runtime", "database"),
        ("database", "api", "maintenance", "broker", "worker", "runtime"),
    ],
    ids=["worker first", "database last", "database first"],
)
def test_parts_start_in_any_order(
    parts: Parts, own_postgres: OwnPostgres, own_valkey: OwnValkey, free_port: Callable[[], int], order: Sequence[str]
) -> None:
    own_postgres.end()
    own_valkey.end()
    port = free_port()

    def worker_that_waits() -> Child:
        worker = parts.worker()
        if order.index("worker") < order.index("database"):
            eventually(lambda: "database_away" in worker.log.read_text(), "it misses the database")
        return worker

    start: dict[str, Callable[[], Child | None]] = {
        "database": own_postgres.start,
        "broker": own_valkey.start,
        "runtime": parts.runtime,
        "worker": worker_that_waits,
        "maintenance": parts.maintenance,
        "api": lambda: parts.start("api", "api", "--port", str(port)),
    }
    started = [start[part]() for part in order]
    eventually(lambda: parts.answers("/readyz", f"http://127.0.0.1:{port}"), "the API is ready")
    post_job(parts, port)
    assert [child for child in started if child is not None and child.ended()] == []


def test_a_rolling_restart_under_a_newer_migration(parts: Parts, tmp_path: Path, database_url: str) -> None:
    parts.settings |= LONG_LEASE
    parts.runtime(*SLOW)
    old = [parts.worker(), parts.maintenance()]
    job_id = parts.queue(tenant := parts.tenant(), ITEMS)
    parts.wait_until_heard(job_id, 30)
    config = Config(CHECKOUT / "alembic.ini")
    config.attributes["url"] = database_url
    head = ScriptDirectory.from_config(config).get_current_head()
    (versions := tmp_path / "versions").mkdir()
    (versions / "later.py").write_text(ADDITIVE.format(head=head), encoding="utf-8")
    config.set_main_option("version_locations", f"{CHECKOUT / 'migrations' / 'versions'}{os.pathsep}{versions}")
    command.upgrade(config, "head")
    under_the_newer = parts.queue(tenant, ITEMS)
    parts.wait_until_heard(under_the_newer, 1)
    for child, start in zip(old, (parts.worker, parts.maintenance), strict=True):
        start()
        assert child.stop() == 0
    for each in (job_id, under_the_newer):
        parts.wait_until_ended(each)
        job = check_ended_job(parts.engine, each)
        assert (job["status"], job["succeeded"]) == ("completed", ITEMS)
    assert parts.rows("SELECT 1 FROM death") == []
