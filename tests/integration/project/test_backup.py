"""The commands of docs/backup.md, run as they stand there: a job that was half heard goes on where they restored it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from embedded import postgres
from embedded.places import CHECKOUT
from embedded.postgres import Postgres
from services.foundation.database import make_engine, transaction
from services.jobs.cancel import cancel
from services.jobs.record import Recorder
from services.jobs.rescue import rescue_lapsed
from services.webhooks import queries
from tests.factories import MODEL, make_tenant, queue_job
from tests.hearings import a_worker, heard, taken
from tests.invariants import check_ended_job

URL = "http://assizes.test"
RESTORED = "restored"
PAGE = (CHECKOUT / "docs" / "backup.md").read_text("utf-8")


def commands(heading: str) -> str:
    """The one block of commands under a heading of the page."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)
    assert isinstance(block, str)
    return block


@pytest.fixture
def names(postgres_server: Postgres, database_url: str, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """What stands for the names that the page uses, with the embedded PostgreSQL's own programs."""
    urls = {"SERVER": postgres_server.url("postgres"), "FROM": database_url, "TO": postgres_server.url(RESTORED)}
    plain = {name: url.replace("+psycopg", "") for name, url in urls.items()}
    for name in (*plain, "DUMP"):
        assert re.search(rf"^{name}=", PAGE, re.M)
    path = os.pathsep.join([str(postgres.programs()), str(Path(sys.executable).parent), os.environ["PATH"]])
    yield {**os.environ, "PATH": path, "DUMP": str(tmp_path / "assizes.dump"), **plain}
    with postgres_server.connect() as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {RESTORED} WITH (FORCE)")


@pytest.fixture
def restored(postgres_server: Postgres) -> Iterator[Engine]:
    """An engine on the database that the page restores into."""
    engine = make_engine(postgres_server.url(RESTORED), "test")
    yield engine
    engine.dispose()


def follow(heading: str, names: Mapping[str, str]) -> None:
    """Do what stands under a heading."""
    done = subprocess.run(
        ["sh", "-eu", "-c", commands(heading)], env=names, cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def column(engine: Engine, statement: str) -> list[Any]:
    with transaction(engine) as connection:
        return list(connection.execute(text(statement)).scalars())


def a_webhook_under_way(engine: Engine, tenant: UUID) -> UUID:
    """A delivery of which an attempt has begun. Returns its id."""
    job_id = queue_job(engine, tenant, 1, callback={"url": "https://example.org/hook"})
    with transaction(engine) as connection:
        cancel(connection, tenant, job_id, URL)
        assert queries.fan_out(connection, 10) == 1
        (parcel,) = queries.claim(connection, 10, 10, {}, hold=0)
    return parcel.id


def test_a_half_heard_job_is_backed_up_under_way_and_ends_where_it_is_restored(
    engine: Engine, names: Mapping[str, str], restored: Engine
) -> None:
    tenant = make_tenant(engine)
    delivery = a_webhook_under_way(engine, tenant)
    job_id = queue_job(engine, tenant, 70)
    worker = a_worker(engine, lease=0.0)
    first, second = taken(engine, worker), taken(engine, worker)
    Recorder(engine, first, URL).end(heard(first, range(32)))
    recorder = Recorder(engine, second, URL)
    recorder.flush(heard(second, range(32, 42)))
    follow("Back up", names)
    recorder.end(heard(second, range(42, 64)))
    follow("Restore", names)

    assert column(restored, "SELECT count(*) FROM verdict") == [42]
    with transaction(restored) as connection:
        (again,) = queries.claim(connection, 10, 10, {}, hold=60)
    assert (again.id, again.number) == (delivery, 2)
    assert rescue_lapsed(restored, URL) == [MODEL]
    healthy = a_worker(restored)
    for seqs in (range(42, 64), range(64, 70)):
        held = taken(restored, healthy)
        assert held.job_id == job_id
        Recorder(restored, held, URL).end(heard(held, seqs))
    assert check_ended_job(restored, job_id)["succeeded"] == 70


def test_what_an_older_version_has_dumped_is_brought_up_to_this_one(
    engine: Engine, database_url: str, names: Mapping[str, str], restored: Engine
) -> None:
    make_tenant(engine)
    config = Config(CHECKOUT / "alembic.ini")
    config.attributes["url"] = database_url
    command.downgrade(config, "0003")
    follow("Back up", names)
    follow("Restore", names)
    assert (
        column(restored, "SELECT version_num FROM alembic_version") == ScriptDirectory.from_config(config).get_heads()
    )
    assert column(restored, "SELECT name FROM tenant") == ["acme"]
