"""What goes by its age, what stays although it is old, and that a drop is in nobody's way."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, text
from structlog.testing import capture_logs

from services.foundation.database import transaction
from services.foundation.errors import NotFound, TracesPruned
from services.foundation.identifiers import new_id
from services.jobs import prune, reread
from services.jobs.delete import LOCK_LINKED, UNLINK, delete, remove_next
from services.jobs.lease import Epoch, open_epoch
from services.jobs.partitions import ensure_partition, take_traces, traces_kept
from services.jobs.prune import delete_old_jobs, drop_old_traces, forget_workers
from services.jobs.queries import load_job
from services.jobs.record import Recorder
from services.jobs.reread import read_reread, reread_next, submit_reread
from services.jobs.results import one_result, stream_results, stream_traces
from services.jobs.retry import submit_retry
from services.reports.queries import report
from services.vocabulary import ItemStatus
from tests.factories import FLEET, MODEL, make_tenant, queue_job
from tests.hearings import a_worker, heard, taken
from tests.integration.jobs.test_reread import FIRST, hear, prefers_a
from tests.integration.jobs.test_reread import FLEET as FLEET_THAT_IS_HEARD
from tests.integration.jobs.test_retry import failing
from tests.locks import sessions_waiting
from tests.parts import eventually
from workers.maintenance.pruner import Pruner

URL = "http://assizes.test"
WEEK = timedelta(days=7)


@pytest.fixture
def tenant(engine: Engine) -> UUID:
    """A tenant."""
    return make_tenant(engine)


def run(engine: Engine, statement: str, **values: object) -> None:
    with transaction(engine) as connection:
        connection.execute(text(statement), values)


def found(engine: Engine, statement: str, **values: object) -> list[Any]:
    with transaction(engine) as connection:
        return list(connection.execute(text(statement), values).scalars())


def today(engine: Engine) -> date:
    (day,) = found(engine, "SELECT (now() AT TIME ZONE 'utc')::date")
    assert isinstance(day, date)
    return day


def ended(engine: Engine, tenant: UUID, *, days_ago: int, made: int | None = None) -> UUID:
    """A job that ended so many days ago, made on the same day or on another."""
    job_id = queue_job(engine, tenant, 2)
    held = taken(engine, a_worker(engine))
    Recorder(engine, held, URL).end(failing(heard(held, range(2)), 1))
    aged(engine, job_id, days_ago=days_ago, made=made)
    return job_id


def aged(engine: Engine, job_id: UUID, *, days_ago: int, made: int | None = None) -> None:
    day = today(engine) - timedelta(days=days_ago if made is None else made)
    with transaction(engine) as connection:
        ensure_partition(connection, day)
        bound = {"id": job_id, "day": day, "ago": timedelta(days=days_ago)}
        connection.execute(text("UPDATE trace SET day = :day WHERE job_id = :id"), bound)
        aging = "created_at = created_at - :ago, ended_at = ended_at - :ago"
        connection.execute(text(f"UPDATE job SET day = :day, {aging} WHERE id = :id"), bound)


def kept(engine: Engine, job_id: UUID) -> bool:
    with transaction(engine) as connection:
        (day,) = connection.execute(text("SELECT day FROM job WHERE id = :id"), {"id": job_id}).scalars()
        return traces_kept(connection, day)


def named(engine: Engine, days_ago: int) -> str:
    return f"trace_{today(engine) - timedelta(days=days_ago):%Y_%m_%d}"


def test_a_days_traces_go_when_all_its_jobs_have_ended_long_enough_ago(engine: Engine, tenant: UUID) -> None:
    old = ended(engine, tenant, days_ago=8)
    ended(engine, tenant, days_ago=9)
    late = ended(engine, tenant, days_ago=6, made=9)
    young = ended(engine, tenant, days_ago=6)
    still_open = queue_job(engine, tenant, 1)
    aged(engine, still_open, days_ago=10)
    assert drop_old_traces(engine, WEEK) == [named(engine, 8)]
    assert [kept(engine, job_id) for job_id in (old, late, young, still_open)] == [False, True, True, True]
    assert drop_old_traces(engine, WEEK) == []
    assert found(engine, "SELECT count(DISTINCT job_id) FROM trace") == [3]


def test_by_default_traces_stay_as_long_as_a_job_of_their_day(engine: Engine, tenant: UUID) -> None:
    job_id = ended(engine, tenant, days_ago=900)
    with transaction(engine) as connection:
        for days in (1, 2, 3):
            ensure_partition(connection, today(engine) - timedelta(days=days))
    assert drop_old_traces(engine, None) == [named(engine, 3), named(engine, 2)]
    assert kept(engine, job_id)
    with transaction(engine) as connection:
        delete(connection, tenant, job_id)
    assert drop_old_traces(engine, None) == []
    run(engine, "UPDATE job SET deleted_at = deleted_at - interval '1 minute'")
    while remove_next(engine):
        pass
    assert drop_old_traces(engine, None) == [named(engine, 900)]


def test_a_job_without_its_traces_still_answers_and_says_so(engine: Engine, tenant: UUID) -> None:
    job_id = ended(engine, tenant, days_ago=8)
    before = report(engine, tenant, job_id)
    results = [line for page in stream_results(engine, tenant, job_id) for line in page]
    (day,) = found(engine, "SELECT day FROM job")
    stream = stream_traces(engine, tenant, job_id, day)
    assert drop_old_traces(engine, WEEK) == [named(engine, 8)]
    with transaction(engine) as connection:
        one = json.loads(one_result(connection, tenant, job_id, "q0"))
    assert (one["verdict"]["winner"], one["traces"]) == ("A", None)
    assert [line for page in stream_results(engine, tenant, job_id) for line in page] == results
    assert report(engine, tenant, job_id) == before
    request, metadata = read_reread(b"")
    with pytest.raises(TracesPruned):
        submit_reread(engine, tenant, job_id, request, metadata, FLEET)
    with pytest.raises(TracesPruned):
        list(stream)
    again = submit_retry(engine, tenant, job_id, [ItemStatus.FAILED], FLEET).job_id
    with transaction(engine) as connection:
        assert load_job(connection, tenant, again).day == today(engine)


def test_what_is_being_read_again_is_neither_dropped_nor_deleted(engine: Engine, tenant: UUID) -> None:
    job_id = queue_job(engine, tenant, 40, FLEET_THAT_IS_HEARD, judges=[FIRST])
    hear(engine, FIRST, prefers_a)
    aged(engine, job_id, days_ago=8)
    request, metadata = read_reread(b"")
    again = submit_reread(engine, tenant, job_id, request, metadata, FLEET_THAT_IS_HEARD).job_id
    assert (drop_old_traces(engine, WEEK), delete_old_jobs(engine, WEEK)) == ([], 0)
    while reread_next(engine, FLEET_THAT_IS_HEARD, URL):
        pass
    assert found(engine, "SELECT status FROM job WHERE id = :id", id=again) == ["completed"]
    assert (drop_old_traces(engine, WEEK), delete_old_jobs(engine, WEEK)) == ([named(engine, 8)], 1)
    assert found(engine, "SELECT count(*) FROM trace WHERE job_id = :id", id=again) == [80]


def an_old_job_that_was_heard(engine: Engine, tenant: UUID) -> UUID:
    job_id = queue_job(engine, tenant, 2, FLEET_THAT_IS_HEARD, judges=[FIRST])
    hear(engine, FIRST, prefers_a)
    aged(engine, job_id, days_ago=8)
    return job_id


def read_again(engine: Engine, tenant: UUID, job_id: UUID) -> UUID:
    request, metadata = read_reread(b"")
    return submit_reread(engine, tenant, job_id, request, metadata, FLEET_THAT_IS_HEARD).job_id


def test_a_reread_that_is_submitted_between_look_and_drop_keeps_its_traces(
    engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = an_old_job_that_was_heard(engine, tenant)

    def submit_then_take(connection: Connection, day: date) -> None:
        read_again(engine, tenant, job_id)
        take_traces(connection, day)

    with monkeypatch.context() as between:
        between.setattr(prune, "take_traces", submit_then_take)
        assert drop_old_traces(engine, WEEK) == []
    while reread_next(engine, FLEET_THAT_IS_HEARD, URL):
        pass
    assert found(engine, "SELECT status FROM job WHERE reread_of IS NOT NULL") == ["completed"]
    assert drop_old_traces(engine, WEEK) == [named(engine, 8)]


def test_what_is_submitted_to_be_read_again_is_not_dropped_before_the_commit(
    engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = an_old_job_that_was_heard(engine, tenant)

    def drop_then_ensure(connection: Connection, day: date) -> None:
        assert drop_old_traces(engine, WEEK) == []
        ensure_partition(connection, day)

    monkeypatch.setattr(reread, "ensure_partition", drop_then_ensure)
    with capture_logs() as logs:
        read_again(engine, tenant, job_id)
    assert [line["event"] for line in logs] == ["drop_postponed"]
    assert kept(engine, job_id)


def test_a_drop_gives_up_at_once_and_calls_are_recorded_meanwhile(engine: Engine, tenant: UUID) -> None:
    ended(engine, tenant, days_ago=8)
    queue_job(engine, tenant, 32)
    held = taken(engine, a_worker(engine))
    recorder = Recorder(engine, held, URL)
    with ThreadPoolExecutor(1) as pool, engine.connect() as reader, capture_logs() as logs:
        reader.execute(text("SELECT count(*) FROM trace"))  # its locks last until its transaction ends
        dropping = pool.submit(drop_old_traces, engine, WEEK)
        for seq in range(32):
            recorder.flush(heard(held, [seq]))
        assert dropping.result(timeout=30) == []
        assert [line["event"] for line in logs] == ["drop_postponed"]
    assert found(engine, "SELECT count(*) FROM trace WHERE job_id = :id", id=held.job_id) == [32]
    assert drop_old_traces(engine, WEEK) == [named(engine, 8)]
    recorder.end(heard(held, []))
    assert found(engine, "SELECT status FROM job WHERE id = :id", id=held.job_id) == ["completed"]


def test_old_jobs_are_deleted_and_no_others(engine: Engine, tenant: UUID) -> None:
    old, young = ended(engine, tenant, days_ago=8), ended(engine, tenant, days_ago=6)
    still_open = queue_job(engine, tenant, 1)
    aged(engine, still_open, days_ago=20)
    with transaction(engine) as connection:
        event = "INSERT INTO event (id, tenant_id, job_id, type, sequence, payload) VALUES (:id, :id, :job, 'x', 1, '')"
        for job_id in (old, young):
            connection.execute(text(event), {"id": new_id(), "job": job_id})
    assert delete_old_jobs(engine, WEEK) == 1
    assert delete_old_jobs(engine, WEEK) == 0
    with transaction(engine) as connection:
        with pytest.raises(NotFound):
            load_job(connection, tenant, old)
        for job_id in (young, still_open):
            load_job(connection, tenant, job_id)
    assert set(found(engine, "SELECT job_id FROM event")) == {young}


def test_jobs_that_stay_hide_no_older_ones(engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    staying = an_old_job_that_was_heard(engine, tenant)
    read_again(engine, tenant, staying)
    going = {ended(engine, tenant, days_ago=days) for days in (9, 8, 8)}
    monkeypatch.setattr(prune, "JOBS_AT_ONCE", 1)
    assert delete_old_jobs(engine, WEEK) == 3
    assert set(found(engine, "SELECT id FROM job WHERE deleted_at IS NOT NULL")) == going


def test_retention_and_an_owner_who_delete_along_a_chain_of_retries_never_deadlock(
    engine: Engine, tenant: UUID
) -> None:
    first, second, third = (ended(engine, tenant, days_ago=days) for days in (8, 1, 8))
    for job_id, source in ((second, first), (third, second)):
        run(engine, "UPDATE job SET retry_of = :source WHERE id = :id", id=job_id, source=source)

    def delete_second() -> None:
        with transaction(engine) as connection:
            delete(connection, tenant, second)

    with ThreadPoolExecutor(2) as pool:
        with transaction(engine) as connection:
            connection.execute(text("SELECT 1 FROM job WHERE id = :id FOR UPDATE"), {"id": second})
            deleting = pool.submit(delete_second)
            eventually(lambda: sessions_waiting(engine) == 1, "the owner waits for the second job")
            pruning = pool.submit(delete_old_jobs, engine, WEEK)
            eventually(lambda: sessions_waiting(engine) == 2, "so does retention, which has the first one")
        deleting.result(timeout=30)
        assert pruning.result(timeout=30) == 2
    assert found(engine, "SELECT count(*) FROM job WHERE deleted_at IS NULL OR retry_of IS NOT NULL") == [0]


def test_each_hours_look_reads_no_table_through(engine: Engine, tenant: UUID) -> None:
    ended(engine, tenant, days_ago=8)
    bound = {"keep": WEEK, "limit": 10, "jobs": [new_id()], **prune.FIRST}
    looks = (prune.OLD_JOBS, prune.OLD_TRACES, prune.FORGET_EPOCHS, LOCK_LINKED, UNLINK)
    with transaction(engine) as connection:
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        for look in looks:
            needed = {name: value for name, value in bound.items() if f":{name}" in look.text}
            plan = "\n".join(connection.execute(text(f"EXPLAIN {look.text}"), needed).scalars())
            assert "Seq Scan on job" not in plan
            assert "Seq Scan on chunk" not in plan


@pytest.mark.parametrize("way", ["nestloop", "hashjoin", "mergejoin", "indexscan", "seqscan"])
def test_old_traces_are_found_whichever_way_the_server_takes(engine: Engine, tenant: UUID, way: str) -> None:
    ended(engine, tenant, days_ago=8)
    with transaction(engine) as connection:
        connection.execute(text(f"SET LOCAL enable_{way} = off"))
        days = connection.execute(prune.OLD_TRACES, {"keep": WEEK}).scalars().all()
    assert days == [today(engine) - timedelta(days=8)]


def an_epoch(engine: Engine, days_ago: int) -> UUID:
    """The start of a runtime whose worker was last heard of so many days ago. Returns the worker."""
    worker_id, epoch_id = a_worker(engine), new_id()
    nothing = dict.fromkeys(("revision", "weights_hash", "template_hash", "runtime_version", "launch_flags"))
    open_epoch(engine, Epoch(id=epoch_id, worker_id=worker_id, model=MODEL, weights="w", server_info={}, **nothing))  # type: ignore[arg-type] # all may be None
    run(engine, "INSERT INTO anchor_scores (epoch_id, scale, scores) VALUES (:id, 's', '[]')", id=epoch_id)
    aging = "started_at = started_at - :ago"
    ago = timedelta(days=days_ago)
    run(engine, f"UPDATE worker SET {aging}, lease_until = now() - :ago WHERE id = :id", id=worker_id, ago=ago)
    run(engine, f"UPDATE runtime_epoch SET {aging} WHERE id = :id", id=epoch_id, ago=ago)
    return worker_id


def test_workers_are_forgotten_with_the_last_job_that_they_may_have_heard(engine: Engine, tenant: UUID) -> None:
    ancient, older, recent = an_epoch(engine, 60), an_epoch(engine, 45), an_epoch(engine, 29)
    never_ready = a_worker(engine)
    run(engine, "UPDATE worker SET lease_until = now() - interval '31 days' WHERE id = :id", id=never_ready)
    queue_job(engine, tenant, 1)
    run(engine, "UPDATE job SET day = current_date - 50, created_at = now() - interval '50 days'")
    assert forget_workers(engine) == 2
    assert set(found(engine, "SELECT id FROM worker")) == {older, recent}
    run(engine, "UPDATE job SET day = current_date, created_at = now()")
    assert forget_workers(engine) == 1
    assert found(engine, "SELECT worker_id FROM runtime_epoch") == [recent]
    assert found(engine, "SELECT count(*) FROM anchor_scores") == [1]
    assert ancient not in found(engine, "SELECT id FROM worker")


def test_while_a_job_was_read_again_all_starts_of_runtimes_stay(engine: Engine, tenant: UUID) -> None:
    worker_id = an_epoch(engine, 60)
    job_id = ended(engine, tenant, days_ago=0)
    request, metadata = read_reread(b"")
    submit_reread(engine, tenant, job_id, request, metadata, FLEET)
    assert forget_workers(engine) == 0
    assert worker_id in found(engine, "SELECT id FROM worker")


@pytest.mark.parametrize(("keep_jobs", "keep_traces"), [(None, None), (None, 7), (7, None), (7, 7)])
def test_the_pruner_does_what_it_is_set_to(
    engine: Engine, tenant: UUID, keep_jobs: int | None, keep_traces: int | None
) -> None:
    job_id = ended(engine, tenant, days_ago=8)
    asyncio.run(Pruner(engine, keep_jobs, keep_traces).run())
    (deleted,) = found(engine, "SELECT deleted_at IS NOT NULL FROM job")
    assert deleted == (keep_jobs is not None)
    assert kept(engine, job_id) == (keep_traces is None)
