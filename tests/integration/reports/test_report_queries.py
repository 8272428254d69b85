"""A report out of the database: the tenant's own, and the one that its items make."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, text

from services.contract.jobs import JobSettings, Sampling
from services.foundation.database import copy_rows, transaction
from services.foundation.errors import NotFound
from services.foundation.identifiers import new_id, shown
from services.foundation.jsontext import escaped
from services.judging.opinion import Opinion
from services.reports.queries import report
from services.vocabulary import Decide, ItemError, Mode, OnConflict, Order, Orders, Winner

A, B = Winner.A, Winner.B
ITEMS = 300
START = datetime(2026, 11, 29, tzinfo=UTC)

SETTINGS = JobSettings(
    orders=Orders.BOTH,
    samples=1,
    mode=Mode.DIRECT,
    decide=Decide.SOFT,
    forced_verdict=True,
    on_conflict=OnConflict.TIE,
    tie_margin=0,
    reading="strict",
    sampling=Sampling(temperature=None, top_p=None, top_k=None, max_tokens=None),
)


def opinion(winner: Winner | None, error: ItemError | None = None) -> Opinion:
    heard = {Order.AB: {A: 1}, Order.BA: {B: 1}} if error is None else {}
    return Opinion(
        judge="smollm2",
        winner=winner,
        p_a=None if winner is None else 0.6,
        consistent=None if error else False,
        error=error,
        votes=heard,
        first_slot=2 if error is None else 0,
        vote_entropy=None,
        valid=0 if error else 2,
        invalid=2 if error else 0,
        forced=0 if error else 2,
        without_p=0,
        flags=frozenset(),
        calls=2,
        prompt_tokens=700,
        cached_tokens=70,
        completion_tokens=2,
        latency_s=1.0,
    )


def insert(connection: Connection, table: str, **values: Any) -> None:
    copy_rows(connection, table, tuple(values), [tuple(values.values())])


@pytest.fixture
def tenant(engine: Engine) -> UUID:
    """A tenant."""
    tenant_id = new_id()
    with transaction(engine) as connection:
        insert(connection, "tenant", id=tenant_id, name="one", webhook_secret="whsec_x")
    return tenant_id


@pytest.fixture
def job_id(engine: Engine, tenant: UUID) -> UUID:
    """A job of 301 items in clusters of 3: every third goes to B, the last ten heard failed, one was never heard."""
    job_id = new_id()
    with transaction(engine) as connection:
        insert(
            connection,
            "job",
            id=job_id,
            tenant_id=tenant,
            day=date(2026, 11, 29),
            kind="judgement",
            status="cancelled",
            priority=1,
            judges=["smollm2"],
            settings=SETTINGS.model_dump_json(),
            name="nightly",
            total=ITEMS + 1,
            started_at=START,
            ended_at=START + timedelta(seconds=100),
            deadline=START,
        )
        for seq in range(ITEMS + 1):
            facets = escaped({"label": "A", "cluster": f"c\0{seq // 3}", "systems": ["\ud800", "theirs"]})
            item = {"custom_id": f'"q{seq}"', "custom_id_hash": UUID(int=seq), "input": "{}", "facets": facets}
            insert(connection, "item", job_id=job_id, seq=seq, **item)
        for seq in range(ITEMS):
            error = ItemError.TRUNCATED if seq >= ITEMS - 10 else None
            winner = None if error else B if seq % 3 == 2 else A
            body = json.dumps(opinion(winner, error).as_json())
            insert(connection, "opinion", job_id=job_id, seq=seq, judge="smollm2", body=body)
            insert(
                connection,
                "verdict",
                job_id=job_id,
                seq=seq,
                status="failed" if error else "succeeded",
                winner=winner,
                error_code=error,
                calls=2,
                prompt_tokens=700,
                cached_tokens=70,
                completion_tokens=2,
            )
    return job_id


def test_the_report_of_a_job_is_made_of_its_heard_items(engine: Engine, tenant: UUID, job_id: UUID) -> None:
    made = report(engine, tenant, job_id)
    assert (made.job.id, made.job.name, made.job.mode) == (shown("job", job_id), "nightly", Mode.DIRECT)
    assert (made.items.total, made.items.heard) == (ITEMS + 1, ITEMS)
    assert made.items.errors == {ItemError.TRUNCATED: 10}
    a = made.sides["A"]
    # 290 items in 97 clusters, the last of them cut to two items by the failures
    assert (a.items, a.wins, a.losses, a.clusters) == (290, 194, 96, 97)
    assert [(rate.system, rate.wins) for rate in made.systems] == [("\ud800", 194), ("theirs", 96)]
    assert made.labels is not None
    assert (made.labels.labelled, made.labels.verdict.raw.count, made.labels.verdict.raw.n) == (300, 194, 290)
    assert (made.position.first_slot.count, made.position.first_slot.n) == (580, 580)
    assert (made.usage.calls, made.usage.prompt_tokens, made.usage.calls_per_second) == (600, 210_000, 6)
    assert json.loads(made.json_text())["job"]["started_at"].startswith("2026-11-29T00:00:00")


def test_another_tenants_job_is_not_there(engine: Engine, job_id: UUID) -> None:
    with pytest.raises(NotFound):
        report(engine, new_id(), job_id)


def test_no_transaction_is_left_open(engine: Engine, tenant: UUID, job_id: UUID) -> None:
    report(engine, tenant, job_id)
    with engine.connect() as connection:
        busy = connection.scalar(
            text(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"
            )
        )
    assert busy == 0
