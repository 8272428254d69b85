"""Deleting jobs: gone at once for everybody, and then removed to the last row, whatever else goes on."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from sqlmodel import SQLModel

from services.foundation.database import transaction
from services.foundation.errors import Conflict, Fenced, NotFound
from services.jobs import delete as deleting
from services.jobs.cancel import cancel
from services.jobs.delete import Removed, delete, remove_next
from services.jobs.queries import list_jobs, load_job
from services.jobs.record import Recorder
from services.jobs.reread import read_reread, reread_next, submit_reread
from services.jobs.results import one_result, stream_results, stream_traces
from services.jobs.retry import UNANSWERED, submit_retry
from services.judging.proceeding import CallKey
from services.reports.queries import report
from tests import stages
from tests.factories import FLEET, make_tenant, queue_job
from tests.hearings import a_worker, heard, taken
from tests.integration.jobs.test_reread import FIRST, hear, prefers_a
from tests.integration.jobs.test_reread import FLEET as FLEET_THAT_IS_HEARD
from tests.invariants import check_ended_job

URL = "http://assizes.test"


@pytest.fixture
def tenant(engine: Engine) -> UUID:
    """A tenant."""
    return make_tenant(engine)


def ended(engine: Engine, tenant: UUID, items: int = 40, chunks: int = 1) -> UUID:
    """A job whose first chunks were heard and whose rest was cancelled."""
    job_id = queue_job(engine, tenant, items)
    for _ in range(chunks):
        held = taken(engine, a_worker(engine))
        Recorder(engine, held, URL).end(heard(held, range(held.first_seq, held.end_seq)))
    with transaction(engine) as connection:
        cancel(connection, tenant, job_id, URL)
    return job_id


def double_calls(engine: Engine) -> None:
    """Every call a second time."""
    with transaction(engine) as connection:
        connection.execute(text("CREATE TEMPORARY TABLE again ON COMMIT DROP AS SELECT * FROM trace"))
        connection.execute(text("UPDATE again SET call = call + 1000"))
        connection.execute(text("INSERT INTO trace SELECT * FROM again"))


def deleted(engine: Engine, tenant: UUID, job_id: UUID) -> None:
    with transaction(engine) as connection:
        delete(connection, tenant, job_id)


def let_a_minute_pass(engine: Engine) -> None:
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deleted_at = deleted_at - interval '1 minute'"))


def removed(engine: Engine) -> int:
    """Remove what is left of deleted jobs. Returns how many transactions that took."""
    steps = 0
    while remove_next(engine):
        steps += 1
    return steps


def left(engine: Engine, job_id: UUID) -> dict[str, int]:
    """What every table that names a job still has of this one."""
    counts = {}
    with transaction(engine) as connection:
        for table in SQLModel.metadata.sorted_tables:
            column = "id" if table.name == "job" else "job_id"
            if column == "id" or column in table.columns:
                statement = text(f"SELECT count(*) FROM {table.name} WHERE {column} = :job_id")
                counts[table.name] = connection.execute(statement, {"job_id": job_id}).scalar_one()
    return {table: count for table, count in counts.items() if count}


def rows(engine: Engine, statement: str, **values: object) -> list[Any]:
    with transaction(engine) as connection:
        return [tuple(row) for row in connection.execute(text(statement), values)]


def everything(engine: Engine, tenant: UUID, job_id: UUID) -> Iterator[Any]:
    """All ways to ask for a job."""
    request, metadata = read_reread(b"")
    with transaction(engine) as connection:
        day = connection.scalar(text("SELECT day FROM job WHERE id = :id"), {"id": job_id})
        yield lambda: load_job(connection, tenant, job_id)
        yield lambda: one_result(connection, tenant, job_id, "q0")
        yield lambda: cancel(connection, tenant, job_id, URL)
        yield lambda: delete(connection, tenant, job_id)
    yield lambda: list(stream_results(engine, tenant, job_id))
    yield lambda: list(stream_traces(engine, tenant, job_id, day))
    yield lambda: report(engine, tenant, job_id)
    yield lambda: submit_reread(engine, tenant, job_id, request, metadata, FLEET)
    yield lambda: submit_retry(engine, tenant, job_id, UNANSWERED, FLEET)


def test_a_deleted_job_is_there_for_nobody_and_its_neighbour_is(engine: Engine, tenant: UUID) -> None:
    job_id, other = ended(engine, tenant), ended(engine, tenant)
    deleted(engine, tenant, job_id)
    for ask in everything(engine, tenant, job_id):
        with pytest.raises(NotFound):
            ask()
    with transaction(engine) as connection:
        listed, _ = list_jobs(connection, tenant, 10)
        assert [json.loads(view.as_json())["id"] for view in listed] == [f"job_{other.hex}"]
    assert len([line for page in stream_results(engine, tenant, other) for line in page]) == 40


def test_who_may_delete_what(engine: Engine, tenant: UUID) -> None:
    job_id = queue_job(engine, tenant, 2)
    with pytest.raises(Conflict, match="cancel it first"):
        deleted(engine, tenant, job_id)
    with transaction(engine) as connection:
        cancel(connection, tenant, job_id, URL)
    with pytest.raises(NotFound):
        deleted(engine, make_tenant(engine, "umbrella"), job_id)
    deleted(engine, tenant, job_id)
    with pytest.raises(NotFound):
        deleted(engine, tenant, job_id)


def test_two_at_once_delete_it_once(engine: Engine, tenant: UUID) -> None:
    job_id = ended(engine, tenant)

    def attempt(_: int) -> bool:
        try:
            deleted(engine, tenant, job_id)
        except NotFound:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(attempt, range(4))) == [False, False, False, True]


def test_not_a_row_is_left_of_it_and_others_keep_theirs(
    engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, other = ended(engine, tenant, 1_100), ended(engine, tenant)
    with transaction(engine) as connection:
        connection.execute(
            text(
                """
                INSERT INTO death (job_id, stage, ordinal, part, model, fence, alone, cause, worker_id)
                VALUES (:id, 'hear', 0, 0, 'tiny', 1, false, 'worker', :id)
                """
            ),
            {"id": job_id},
        )
    kept = left(engine, other)
    assert {"item", "chunk", "trace", "opinion", "verdict", "death"} <= left(engine, job_id).keys()
    deleted(engine, tenant, job_id)
    assert removed(engine) == 0  # somebody may be reading it
    let_a_minute_pass(engine)
    assert removed(engine) == 4  # 500 items, 500, 100, the rest
    assert left(engine, job_id) == {}
    assert left(engine, other) == kept


def test_nothing_is_left_of_a_reappraisal(engine: Engine, tenant: UUID) -> None:
    scenes = [{"custom_id": f"s{seq}", "scenario": f"scenario {seq}"} for seq in range(2)]
    options = {"candidates": 2, "committee": "within"}
    job_id = queue_job(engine, tenant, scenes, fleet=stages.FLEET, kind="reappraisal", model="writer", options=options)
    stages.write(engine, stages.ACCEPTED, stages.ACCEPTED)
    stages.score(engine, "a", [0.0, 1.0])
    stages.score(engine, "b", [0.0, 1.0])
    assert stages.settle(engine) == 1
    assert {"reappraisal", "score", "assessment"} <= left(engine, job_id).keys()
    deleted(engine, tenant, job_id)
    let_a_minute_pass(engine)
    removed(engine)
    assert left(engine, job_id) == {}


def test_many_chunks_go_a_part_at_a_time(engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = ended(engine, tenant, 200)
    monkeypatch.setattr(deleting, "ROWS_AT_ONCE", 3)
    deleted(engine, tenant, job_id)
    let_a_minute_pass(engine)
    assert removed(engine) == 11 + 3  # items with 32 calls, 3 of them at once; 3, 3 and 1 chunks of 7
    assert left(engine, job_id) == {}


def test_items_of_many_calls_go_a_few_at_a_time(engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = ended(engine, tenant)  # 32 items that were heard, then 8 that were not
    double_calls(engine)
    monkeypatch.setattr(deleting, "ROWS_AT_ONCE", 11)
    deleted(engine, tenant, job_id)
    let_a_minute_pass(engine)
    place, traces = None, [left(engine, job_id)["trace"]]
    while place := remove_next(engine, place):
        traces.append(left(engine, job_id).get("trace", 0))
    assert traces == [64, 54, 44, 34, 24, 14, 4, 0, 0]
    assert left(engine, job_id) == {}


def test_an_item_with_more_calls_than_go_at_once_goes_whole(
    engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = ended(engine, tenant, 3)
    double_calls(engine)
    monkeypatch.setattr(deleting, "ROWS_AT_ONCE", 1)
    deleted(engine, tenant, job_id)
    let_a_minute_pass(engine)
    assert remove_next(engine) == (job_id, 1)
    assert left(engine, job_id)["trace"] == 4


def test_what_a_remover_knows_to_be_gone_it_does_not_look_for(
    engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, other = ended(engine, tenant), ended(engine, tenant)
    monkeypatch.setattr(deleting, "ITEMS_AT_ONCE", 10)
    deleted(engine, tenant, job_id)
    let_a_minute_pass(engine)
    assert remove_next(engine, Removed(other, 30)) == (job_id, 10)
    assert remove_next(engine, Removed(job_id, 20)) == (job_id, 30)
    assert left(engine, job_id)["item"] == 20


def test_a_crash_in_between_leaves_the_rest_to_the_next(engine: Engine, tenant: UUID) -> None:
    job_id = ended(engine, tenant, 600)
    deleted(engine, tenant, job_id)
    let_a_minute_pass(engine)
    assert remove_next(engine)
    assert left(engine, job_id)["item"] == 100
    for ask in everything(engine, tenant, job_id):
        with pytest.raises(NotFound):
            ask()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: removed(engine), range(3)))
    assert left(engine, job_id) == {}


def test_retries_and_rereads_forget_whose_they_were(engine: Engine, tenant: UUID) -> None:
    def unsure_at_last(seq: int, key: CallKey) -> str:
        return prefers_a(seq, key) if seq < 64 else "Hard to say."

    options = {"forced_verdict": False}
    job_id = queue_job(engine, tenant, 72, FLEET_THAT_IS_HEARD, judges=[FIRST], options=options)
    assert hear(engine, FIRST, unsure_at_last) == 3
    request, metadata = read_reread(b"")
    retry = submit_retry(engine, tenant, job_id, UNANSWERED, FLEET_THAT_IS_HEARD).job_id
    again = submit_reread(engine, tenant, job_id, request, metadata, FLEET_THAT_IS_HEARD).job_id
    assert reread_next(engine, FLEET_THAT_IS_HEARD, URL)  # one of three chunks
    before = dict(rows(engine, "SELECT id, version FROM job"))
    deleted(engine, tenant, job_id)
    links = rows(engine, "SELECT id, retry_of, reread_of FROM job WHERE id <> :id ORDER BY id", id=job_id)
    assert links == [(retry, None, None), (again, None, None)]
    after = dict(rows(engine, "SELECT id, version FROM job"))
    assert all(after[one] == before[one] + 1 for one in (retry, again))
    while reread_next(engine, FLEET_THAT_IS_HEARD, URL):  # and finds nothing to read
        pass
    let_a_minute_pass(engine)
    removed(engine)
    assert hear(engine, FIRST, prefers_a) == 1
    assert check_ended_job(engine, retry)["succeeded"] == 8
    assert rows(engine, "SELECT status, succeeded, expired FROM job WHERE id = :id", id=again) == [("expired", 32, 40)]


def test_a_stream_that_is_cut_off_does_not_seem_whole(engine: Engine, tenant: UUID) -> None:
    job_id = ended(engine, tenant, 1_100, chunks=4)
    day = rows(engine, "SELECT day FROM job")[0][0]
    results, traces = stream_results(engine, tenant, job_id), stream_traces(engine, tenant, job_id, day)
    assert len(next(iter(results))) == 500
    next(iter(traces))
    deleted(engine, tenant, job_id)
    for stream in (results, traces):
        with pytest.raises(NotFound):
            list(stream)


def test_a_report_under_way_is_whole_or_there_is_none(engine: Engine, tenant: UUID) -> None:
    job_id = ended(engine, tenant, 300, chunks=3)
    whole = report(engine, tenant, job_id)

    def read_to_the_end() -> int:
        reports = 0
        while True:
            try:
                assert report(engine, tenant, job_id) == whole
            except NotFound:
                return reports
            reports += 1
            begun.set()

    begun = Event()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_to_the_end)
        assert begun.wait(60)
        deleted(engine, tenant, job_id)
        removed(engine)
        assert reading.result(timeout=60) >= 1


def test_a_worker_that_was_fenced_writes_nothing_into_what_is_removed(engine: Engine, tenant: UUID) -> None:
    job_id = queue_job(engine, tenant, 8)
    late = taken(engine, a_worker(engine))
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deadline = now() - interval '1 hour'"))
        cancel(connection, tenant, job_id, URL)
    recorder = Recorder(engine, late, URL)
    recorder.release(heard(late, range(4)))
    deleted(engine, tenant, job_id)
    with pytest.raises(Fenced):
        recorder.flush(heard(late, range(4, 8)))
    let_a_minute_pass(engine)
    removed(engine)
    for write in (recorder.flush, recorder.end):
        with pytest.raises(Fenced):
            write(heard(late, range(4, 8)))
    assert left(engine, job_id) == {}
