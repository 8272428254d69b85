"""A report out of the database: the tenant's own, and the one that its items make."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, text

from services.contract.options import JobSettings, JudgeSettings, PanelSettings, Sampling
from services.foundation.database import transaction
from services.foundation.errors import NotFound
from services.foundation.identifiers import new_id, shown
from services.foundation.jsontext import escaped
from services.judging.opinion import Opinion
from services.judging.standing import rank_pairs
from services.reports.item import item_row
from services.reports.queries import HEARD, report
from services.vocabulary import Decide, ItemError, Mode, OnConflict, Order, Orders, Outcome, Winner
from tests.hearings import opinion_of_both
from tests.integration.reports.conftest import insert

A, B = Winner.A, Winner.B
ITEMS = 300
START = datetime(2026, 11, 29, tzinfo=UTC)


def settings(judges: Sequence[str]) -> JobSettings:
    direct = JudgeSettings(
        orders=Orders.BOTH,
        samples=1,
        early_stop="certain",
        mode=Mode.DIRECT,
        decide=Decide.SOFT,
        margin="blended",
        pairs="all",
        principle=None,
        score_policies=None,
        forced_verdict=True,
        on_conflict=OnConflict.TIE,
        tie_margin=0,
        reading="strict",
        sampling=Sampling(temperature=None, top_p=None, top_k=None, max_tokens=None),
    )
    panel = PanelSettings(decide="majority", weights={}, tie_margin=0) if len(judges) > 1 else None
    return JobSettings(judges=dict.fromkeys(judges, direct), panel=panel)


def opinion(winner: Winner | None, error: ItemError | None = None, judge: str = "smollm2") -> Opinion:
    """Of a judge that always takes the first slot, or fails."""
    return opinion_of_both(
        judge,
        winner,
        {Order.AB: {A: 1}, Order.BA: {B: 1}},
        error,
        p_a=None if winner is None else 0.6,
        consistent=None if error else False,
        first_slot=0 if error else 2,
        forced=0 if error else 2,
        prompt_tokens=700,
        cached_tokens=70,
        completion_tokens=2,
    )


def insert_job(connection: Connection, tenant: UUID, judges: list[str], total: int) -> UUID:
    job_id = new_id()
    insert(
        connection,
        "job",
        id=job_id,
        tenant_id=tenant,
        day=date(2026, 11, 29),
        kind="judgement",
        status="cancelled",
        priority=1,
        judges=judges,
        settings=settings(judges).model_dump_json(),
        name="nightly",
        total=total,
        started_at=START,
        ended_at=START + timedelta(seconds=100),
        deadline=START,
    )
    return job_id


@pytest.fixture
def job_id(engine: Engine, tenant: UUID) -> UUID:
    """A job of 301 items in clusters of 3: every third goes to B, the last ten heard failed, one was never heard."""
    with transaction(engine) as connection:
        job_id = insert_job(connection, tenant, ["smollm2"], ITEMS + 1)
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
    assert (made.job.id, made.job.name, made.job.judges[0].mode) == (shown("job", job_id), "nightly", Mode.DIRECT)
    assert (made.items.total, made.items.heard) == (ITEMS + 1, ITEMS)
    assert made.items.errors == {ItemError.TRUNCATED: 10}
    a = made.sides["A"]
    # 290 items in 97 clusters, the last of them cut to two items by the failures
    assert (a.pairs, a.wins, a.losses, a.clusters) == (290, 194, 96, 97)
    assert [(rate.system, rate.wins) for rate in made.systems] == [("\ud800", 194), ("theirs", 96)]
    assert made.labels is not None
    assert (made.labels.labelled, made.labels.verdict.raw.count, made.labels.verdict.raw.n) == (300, 194, 290)
    (judge,) = made.judges
    assert (judge.position.first_slot.count, judge.position.first_slot.n) == (580, 580)
    assert (judge.answers.outcomes[Outcome.DECIDED], judge.answers.outcomes[Outcome.TRUNCATED]) == (580, 20)
    assert (made.usage.calls, made.usage.prompt_tokens, made.usage.calls_per_second) == (600, 210_000, 6)
    assert json.loads(made.json_text())["job"]["started_at"].startswith("2026-11-29T00:00:00")


def test_a_panels_opinions_and_rankings_come_with_their_verdicts(engine: Engine, tenant: UUID) -> None:
    standing = rank_pairs([(0, 1, 1.0, 2.0), (0, 2, 1.0, 2.0), (1, 2, 0.5, 2.0)], 3)
    assert standing is not None
    ranked = replace(opinion(None), votes={}, first_slot=0, standing=standing)
    items = [
        ({"label": "A", "cluster": None, "systems": ["x", "y"]}, [opinion(A), opinion(B, judge="other")], A, 1.0),
        ({"label": "A", "cluster": None, "systems": ["x", "y"]}, [opinion(A)], A, None),
        ({"label": 0, "cluster": None, "systems": ["x", "y", "z"]}, [ranked, replace(ranked, judge="other")], "0", 0.0),
    ]
    used = {"calls": 2, "prompt_tokens": 700, "cached_tokens": 70, "completion_tokens": 2}
    with transaction(engine) as connection:
        job_id = insert_job(connection, tenant, ["smollm2", "other"], len(items))
        for seq, (facets, opinions, winner, disagreement) in enumerate(items):
            item = {"custom_id": f'"q{seq}"', "custom_id_hash": UUID(int=seq), "input": "{}", "facets": escaped(facets)}
            insert(connection, "item", job_id=job_id, seq=seq, **item)
            for said in opinions:
                body = json.dumps(said.as_json())
                insert(connection, "opinion", job_id=job_id, seq=seq, judge=said.judge, body=body)
            reached: dict[str, Any] = {"status": "succeeded", "winner": winner, "disagreement": disagreement}
            if winner == "0":
                reached["standing"] = json.dumps(standing.as_json())
            insert(connection, "verdict", job_id=job_id, seq=seq, **reached, **used)
    made = report(engine, tenant, job_id)
    assert [judge.name for judge in made.job.judges] == ["smollm2", "other"]
    assert [(judge.name, judge.answered.count, judge.usage.calls) for judge in made.judges] == [
        ("smollm2", 3, 6),
        ("other", 2, 4),
    ]
    assert made.panel is not None
    assert (made.panel.disagreement, made.panel.unanimous.count, made.panel.unanimous.n) == (0.5, 1, 2)
    assert (made.panel.partial.count, made.panel.partial.n) == (1, 3)
    # x beats y twice and, in the item of three, both of the others
    assert [(rate.system, rate.pairs, rate.wins, rate.ties) for rate in made.systems] == [
        ("x", 4, 4, 0),
        ("z", 2, 0, 1),
        ("y", 4, 0, 1),
    ]
    assert made.labels is not None
    assert made.labels.best is not None
    assert (made.labels.best.raw.count, made.labels.best.raw.n) == (1, 1)


def test_a_job_that_reads_another_again_has_cost_nothing(engine: Engine, tenant: UUID, job_id: UUID) -> None:
    with transaction(engine) as connection:
        source = insert_job(connection, tenant, ["smollm2"], 0)
        nothing = "calls = 0, prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0"
        connection.execute(text(f"UPDATE verdict SET {nothing} WHERE job_id = :id"), {"id": job_id})
        connection.execute(text("UPDATE job SET reread_of = :source WHERE id = :id"), {"source": source, "id": job_id})
    made = report(engine, tenant, job_id)
    assert made.job.reread_of == shown("job", source)
    assert (made.usage.calls, made.judges[0].usage.calls, made.judges[0].usage.prompt_tokens) == (0, 0, 0)
    assert made.judges[0].answers.outcomes[Outcome.DECIDED] == 580
    with transaction(engine) as connection:
        connection.execute(text("DELETE FROM job WHERE id = :source"), {"source": source})
    later = report(engine, tenant, job_id)
    assert (later.job.reread_of, later.judges) == (None, made.judges)


def test_of_a_standing_in_an_opinion_the_winner_alone_is_read(engine: Engine, tenant: UUID) -> None:
    standing = rank_pairs([(0, 1, 1.0, 2.0), (1, 2, 1.0, 2.0)], 3)
    assert standing is not None
    said = replace(opinion(None), votes={}, first_slot=0, standing=standing)
    with transaction(engine) as connection:
        job_id = insert_job(connection, tenant, ["smollm2"], 1)
        item = {"custom_id": '"q"', "custom_id_hash": UUID(int=1), "input": "{}"}
        facets = escaped({"label": None, "cluster": None, "systems": [None, None, None]})
        insert(connection, "item", job_id=job_id, seq=0, facets=facets, **item)
        insert(connection, "opinion", job_id=job_id, seq=0, judge="smollm2", body=json.dumps(said.as_json()))
        reached = {"status": "succeeded", "winner": "0", "standing": json.dumps(standing.as_json())}
        used = {"calls": 2, "prompt_tokens": 700, "cached_tokens": 70, "completion_tokens": 2}
        insert(connection, "verdict", job_id=job_id, seq=0, **reached, **used)
        read = connection.execute(HEARD, {"job_id": job_id}).mappings().one()
    (body,) = map(json.loads, read["opinions"])
    assert body == json.loads(json.dumps(said.as_json())) | {"standing": body["standing"]}
    kept = {name: value for name, value in body["standing"].items() if value}
    assert kept == {"ranking": [0, 1, 2], "ranks": [1, 2, 3]} | ({"separated": True} if standing.separated else {})
    assert (body["standing"]["winner"], item_row(read).opinions[0].standing is not None) == (0, True)


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
