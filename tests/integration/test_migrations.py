"""The migrations make exactly the tables that the models describe, keep what is stored, and take the tables down again.

The rows of each revision are written out as its own version wrote them.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, inspect, text

from embedded.places import CHECKOUT
from services.foundation.database import copy_rows, transaction
from services.foundation.identifiers import new_id
from services.jobs.claim import claim
from services.jobs.partitions import ensure_partition
from services.jobs.queries import load_job
from services.jobs.results import results_page, stream_traces
from services.judging.opinion import Opinion
from services.reports.queries import report
from services.vocabulary import Outcome
from tests.parts import eventually

JUDGE = "sdrm-4b"
DAY = date(2026, 11, 20)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
USED = {"calls": 3, "prompt_tokens": 900, "cached_tokens": 90, "completion_tokens": 60}

SETTINGS = {
    "orders": "both",
    "samples": 1,
    "mode": "reason",
    "decide": "vote",
    "forced_verdict": True,
    "early_stop": None,
    "on_conflict": "tie",
    "tie_margin": 0.0,
    "reading": "strict",
    "sampling": {"temperature": 0.5, "top_p": None, "top_k": None, "max_tokens": None},
}
ANSWERED = {
    "judge": JUDGE,
    "winner": "A",
    "p_a": 0.75,
    "consistent": False,
    "reason": None,
    "votes": {"ab": {"A": 1, "B": 0, "tie": 0}, "ba": {"A": 0, "B": 0, "tie": 1}},
    "first_slot": 1,
    "vote_entropy": 1.0,
    "valid": 2,
    "invalid": 0,
    "forced": 0,
    "without_p": 2,
    "flags": [],
    "calls": 2,
    "prompt_tokens": 600,
    "cached_tokens": 60,
    "completion_tokens": 40,
    "latency_s": 2.5,
}
SILENT = ANSWERED | {
    "winner": None,
    "p_a": None,
    "consistent": None,
    "reason": "truncated",
    "votes": {"ab": {"A": 0, "B": 1, "tie": 0}, "ba": {"A": 0, "B": 0, "tie": 0}},
    "first_slot": 0,
    "valid": 1,
    "invalid": 1,
}
# seq, call, order, forced, outcome: the second item's swapped order was cut off, and forced in vain
CALLS = (
    (0, 0, "ab", False, "decided"),
    (0, 2, "ba", False, "tie"),
    (1, 0, "ab", False, "decided"),
    (1, 2, "ba", False, "truncated"),
    (1, 3, "ba", True, "aborted"),
)


@pytest.fixture
def config(database_url: str) -> Config:
    """Alembic's settings, for this test's database."""
    config = Config(CHECKOUT / "alembic.ini")
    config.attributes["url"] = database_url
    return config


@pytest.fixture
def tenant_id() -> UUID:
    """The tenant of the jobs."""
    return new_id()


def insert_job(engine: Engine, tenant_id: UUID, status: str) -> UUID:
    """As revision 0001 has it: a job of four items in two chunks, the first one heard, the second cancelled."""
    job_id = new_id()
    rows: list[tuple[str, Mapping[str, Any]]] = [
        ("tenant", {"id": tenant_id, "name": "acme", "webhook_secret": "whsec_x"}),
        (
            "job",
            {
                "id": job_id,
                "tenant_id": tenant_id,
                "day": DAY,
                "kind": "judgement",
                "status": status,
                "priority": 1,
                "judges": [JUDGE],
                "settings": json.dumps(SETTINGS),
                "name": "before",
                "total": 4,
                "succeeded": 1,
                "failed": 1,
                "cancelled": 0 if status == "cancelling" else 2,
                "version": 3,
                "started_at": NOW,
                "deadline": NOW,
            },
        ),
    ]
    for seq in range(4):
        facets = json.dumps({"label": "A", "cluster": None, "systems": ["x", "y"]})
        item = {"custom_id": f'"q{seq}"', "custom_id_hash": UUID(int=seq), "input": "{}", "facets": facets}
        rows.append(("item", {"job_id": job_id, "seq": seq, **item}))
    for ordinal, state in enumerate(("finished", "cancelled")):
        place = {"job_id": job_id, "stage": "hear", "ordinal": ordinal, "part": 0, "model": JUDGE, "priority": 1}
        counts = {"succeeded": 1 - ordinal, "failed": 1 - ordinal, "finished_version": 2 + ordinal}
        span = {"first_seq": 2 * ordinal, "end_seq": 2 * ordinal + 2}
        rows.append(("chunk", place | span | counts | {"state": state}))
    for seq, call, order, forced, outcome in CALLS:
        place = {"day": DAY, "job_id": job_id, "seq": seq, "stage": "hear", "judge": JUDGE, "call": call}
        heard = {"shown_order": order, "sample": 0, "forced": forced, "outcome": outcome, "reading": "{}"}
        rows.append(("trace", place | heard | {"epoch_id": new_id()}))
    for seq, said in enumerate((ANSWERED, SILENT)):
        rows.append(("opinion", {"job_id": job_id, "seq": seq, "judge": JUDGE, "body": json.dumps(said)}))
    answer = {"status": "succeeded", "winner": "A", "p_a": 0.75, "consistent": False}
    rows.append(("verdict", {"job_id": job_id, "seq": 0, **answer, **USED}))
    error = {"status": "failed", "error_code": "truncated", "error_message": "cut off"}
    rows.append(("verdict", {"job_id": job_id, "seq": 1, **error, **USED}))
    with transaction(engine) as connection:
        ensure_partition(connection, DAY)
        for table, values in rows:
            copy_rows(connection, table, tuple(values), [tuple(values.values())])
    return job_id


def stored(engine: Engine, statement: str) -> list[Any]:
    with transaction(engine) as connection:
        return list(connection.execute(text(statement)).scalars())


def test_the_migrated_database_is_what_the_models_say(config: Config) -> None:
    command.check(config)


def test_going_down_leaves_nothing_behind(engine: Engine, config: Config) -> None:
    command.downgrade(config, "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]


def test_a_run_that_waits_for_a_lock_lets_the_others_go_on_and_begins_anew(engine: Engine, config: Config) -> None:
    command.downgrade(config, "0001")
    waiting = text("SELECT pid FROM pg_locks JOIN pg_class ON oid = relation WHERE relname = 'job' AND NOT granted")
    with ThreadPoolExecutor() as beside, engine.connect() as reader:
        reader.execute(text("LOCK TABLE job IN ACCESS SHARE MODE"))
        upgrade = beside.submit(command.upgrade, config, "head")
        first = eventually(lambda: reader.execute(waiting).scalar(), "the migration waits for the reader")
        eventually(lambda: reader.execute(waiting).scalar() not in (None, first), "it has begun anew")
        reader.rollback()
        upgrade.result()
    command.check(config)


def test_a_job_of_the_first_revision_is_read_as_before(engine: Engine, config: Config, tenant_id: UUID) -> None:
    command.downgrade(config, "0001")
    job_id = insert_job(engine, tenant_id, "cancelled")
    command.upgrade(config, "head")
    with transaction(engine) as connection:
        job = json.loads(load_job(connection, tenant_id, job_id).as_json())
        results = [json.loads(line) for line in results_page(connection, tenant_id, job_id, 10).lines]
    new = {"early_stop": "never", "margin": "blended", "pairs": "all", "principle": None, "score_policies": None}
    assert job["options"] == {JUDGE: SETTINGS | new}
    assert (job["panel"], job["reread_of"], job["counts"]["cancelled"]) == (None, None, 2)
    assert [(result["seq"], result["status"]) for result in results] == [
        (0, "succeeded"),
        (1, "failed"),
        (2, "cancelled"),
        (3, "cancelled"),
    ]
    (said,) = results[0]["verdict"]["opinions"]
    assert {name: said[name] for name in ANSWERED} == ANSWERED
    assert said == json.loads(json.dumps(Opinion.from_json(said).as_json()))

    traces = [json.loads(line) for page in stream_traces(engine, tenant_id, job_id, DAY) for line in page]
    assert [(trace["seq"], trace["order"], trace["slots"]) for trace in traces] == [
        (seq, order, [0, 1] if order == "ab" else [1, 0]) for seq, _, order, _, _ in CALLS
    ]
    made = report(engine, tenant_id, job_id)
    (judge,) = made.judges
    counts = {outcome: count for outcome, count in judge.answers.outcomes.items() if count}
    assert counts == {Outcome.DECIDED: 2, Outcome.TIE: 1, Outcome.ABORTED: 1}
    assert (made.items.heard, made.sides["A"].wins) == (2, 1)


def test_a_cancel_under_way_has_counted_what_it_stopped(engine: Engine, config: Config, tenant_id: UUID) -> None:
    command.downgrade(config, "0001")
    job_id = insert_job(engine, tenant_id, "cancelling")
    command.upgrade(config, "head")
    with transaction(engine) as connection:
        job = json.loads(load_job(connection, tenant_id, job_id).as_json())
    assert job["counts"]["cancelled"] == 2


def test_down_and_up_again_changes_no_job_that_the_first_revision_can_hold(
    engine: Engine, config: Config, tenant_id: UUID
) -> None:
    command.downgrade(config, "0001")
    insert_job(engine, tenant_id, "cancelled")
    command.upgrade(config, "head")
    command.downgrade(config, "0001")
    assert [json.loads(settings) for settings in stored(engine, "SELECT settings FROM job")] == [SETTINGS]
    assert stored(engine, "SELECT body FROM opinion ORDER BY seq") == [ANSWERED, SILENT]
    orders = stored(engine, "SELECT shown_order FROM trace ORDER BY seq, call")
    assert orders == [order for _, _, order, _, _ in CALLS]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE job SET status = 'running'",
        "UPDATE job SET judges = '{sdrm-4b,genrm-235b}'",
        "UPDATE job SET reread_of = id",
        "UPDATE job SET settings = replace(settings, '\"vote\"', '\"scores\"')",
        "UPDATE verdict SET standing = '{}' WHERE seq = 0",
        "UPDATE trace SET shown_order = NULL WHERE seq = 0 AND call = 0",
        "UPDATE trace SET slots = '{0,2}' WHERE seq = 0 AND call = 0",
    ],
)
def test_the_way_down_refuses_what_the_first_revision_cannot_hold(
    engine: Engine, config: Config, tenant_id: UUID, change: str
) -> None:
    command.downgrade(config, "0001")
    insert_job(engine, tenant_id, "cancelled")
    command.upgrade(config, "0002")
    with transaction(engine) as connection:
        connection.execute(text(change))
    with pytest.raises(ValueError, match="1 jobs"):
        command.downgrade(config, "0001")
    assert stored(engine, "SELECT version_num FROM alembic_version") == ["0002"]


def test_chunks_of_older_jobs_know_their_steps(engine: Engine, config: Config, tenant_id: UUID) -> None:
    command.downgrade(config, "0001")
    job_id = insert_job(engine, tenant_id, "cancelled")
    command.upgrade(config, "0002")
    place = {"job_id": job_id, "stage": "conclude", "ordinal": 0, "part": 0, "model": "cpu", "priority": 1}
    span = {"first_seq": 0, "end_seq": 2, "state": "finished", "settles": True}
    with transaction(engine) as connection:
        copy_rows(connection, "chunk", tuple(place | span), [tuple((place | span).values())])
    command.upgrade(config, "head")
    assert stored(engine, "SELECT stage || step FROM chunk ORDER BY stage, ordinal") == ["conclude1", "hear0", "hear0"]


def test_open_jobs_get_their_places_in_line(engine: Engine, config: Config, tenant_id: UUID) -> None:
    command.downgrade(config, "0001")
    job_id = insert_job(engine, tenant_id, "running")
    with transaction(engine) as connection:
        connection.execute(text("UPDATE chunk SET state = 'queued' WHERE ordinal = 1"))
    command.upgrade(config, "0003")
    place = {"job_id": job_id, "stage": "conclude", "ordinal": 1, "part": 0, "model": "cpu", "priority": 1}
    span = {"first_seq": 2, "end_seq": 4, "step": 1, "state": "waiting", "settles": False}
    with transaction(engine) as connection:
        copy_rows(connection, "chunk", tuple(place | span), [tuple((place | span).values())])
    command.upgrade(config, "head")
    assert stored(engine, "SELECT model || job_id || priority || tenant_id FROM turn") == [
        f"{JUDGE}{job_id}1{tenant_id}"
    ]
    held = claim(engine, new_id(), JUDGE)
    assert held is not None
    assert (held.job_id, held.ordinal) == (job_id, 1)
    assert stored(engine, "SELECT served FROM share") == [2]


def test_the_way_down_refuses_what_the_second_revision_cannot_hold(
    engine: Engine, tenant_id: UUID, config: Config
) -> None:
    command.downgrade(config, "0001")
    insert_job(engine, tenant_id, "cancelled")
    command.upgrade(config, "0003")
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET kind = 'scoring'"))
    with pytest.raises(ValueError, match="1 jobs"):
        command.downgrade(config, "0002")
    assert stored(engine, "SELECT version_num FROM alembic_version") == ["0003"]


def test_the_way_down_leaves_no_job_that_was_deleted(engine: Engine, tenant_id: UUID, config: Config) -> None:
    command.downgrade(config, "0001")
    insert_job(engine, tenant_id, "cancelled")
    command.upgrade(config, "0005")
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deleted_at = now()"))
    command.downgrade(config, "0004")
    tables = ("job", "item", "chunk", "trace", "opinion", "verdict")
    assert [stored(engine, f"SELECT count(*) FROM {table}") for table in tables] == [[0]] * len(tables)
    command.upgrade(config, "head")
