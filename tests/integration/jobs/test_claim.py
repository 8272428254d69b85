"""Claiming and recording: one holder a chunk, fenced writes, exact counts."""

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from psycopg import OperationalError
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from services.foundation.database import make_engine, transaction, worker_sessions
from services.foundation.errors import Fenced
from services.jobs.cancel import cancel
from services.jobs.claim import claim
from services.jobs.docket import heard_before
from services.jobs.hear import unheard
from services.jobs.lease import retire
from services.jobs.record import Batch, Recorder
from services.jobs.rescue import expire_overdue, rescue_lapsed
from services.vocabulary import Priority
from tests.factories import MODEL, make_tenant, queue_job
from tests.hearings import a_worker, heard, taken
from tests.invariants import check_ended_job
from tests.parts import eventually

URL = "http://assizes.test"


def status(engine: Engine, job_id: UUID) -> str:
    with transaction(engine) as connection:
        found: str = connection.scalar(text("SELECT status FROM job WHERE id = :id"), {"id": job_id})
    return found


def test_a_chunk_goes_to_one_worker_and_the_job_starts(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 320)
    workers = [a_worker(engine) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda number: claim(engine, workers[number % 4], MODEL), range(12)))
    held = [each for each in claims if each is not None]
    assert sorted(each.ordinal for each in held) == list(range(10))
    assert claims.count(None) == 2
    assert all(each.fence == 1 for each in held)
    assert status(engine, job_id) == "running"


def test_only_the_chunks_of_the_own_model_are_seen(engine: Engine) -> None:
    queue_job(engine, make_tenant(engine), 1)
    assert claim(engine, a_worker(engine), "other") is None


def test_more_urgent_work_comes_first_then_older(engine: Engine) -> None:
    tenant = make_tenant(engine)
    bulk = queue_job(engine, tenant, 1, priority="bulk")
    old = queue_job(engine, tenant, 1)
    young = queue_job(engine, tenant, 1)
    urgent = queue_job(engine, tenant, 1, priority="interactive")
    worker = a_worker(engine)
    assert [taken(engine, worker).job_id for _ in range(4)] == [urgent, old, young, bulk]
    queue_job(engine, tenant, 1)
    assert claim(engine, worker, MODEL, least=Priority.INTERACTIVE) is None


def test_counts_move_with_flushes_and_add_up_at_the_end(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 40)
    worker = a_worker(engine)
    first, second = taken(engine, worker), taken(engine, worker)
    recorder = Recorder(engine, first, URL)
    recorder.flush(heard(first, range(10)))
    recorder.flush(heard(first, range(10, 20)))
    recorder.end(heard(first, range(20, 32)))
    assert status(engine, job_id) == "running"
    Recorder(engine, second, URL).end(heard(second, range(32, 40)))
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["succeeded"], job["calls"], job["prompt_tokens"]) == ("completed", 40, 40, 400)


def test_a_batch_whose_commit_went_unanswered_is_not_written_twice(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 32)
    held = taken(engine, a_worker(engine))
    batch = heard(held, range(32))
    Recorder(engine, held, URL).flush(batch)
    unaware = Recorder(engine, held, URL)  # as the first one would stand had its answer been lost
    unaware.flush(batch)
    unaware.end(Batch())
    Recorder(engine, held, URL).end(Batch())
    assert check_ended_job(engine, job_id)["succeeded"] == 32


def test_a_silent_worker_loses_its_chunk_and_its_writes_are_refused(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 32)
    silent = a_worker(engine, lease=0.0)
    lost = taken(engine, silent)
    late = Recorder(engine, lost, URL)
    late.flush(heard(lost, range(5)))
    assert rescue_lapsed(engine, URL) == [MODEL]
    with pytest.raises(Fenced):
        late.flush(heard(lost, range(5, 6)))
    again = taken(engine, a_worker(engine))
    assert (again.ordinal, again.fence) == (lost.ordinal, lost.fence + 1)
    for write in (late.flush, late.release, late.end):
        with pytest.raises(Fenced):
            write(heard(lost, range(5, 32)))
    with transaction(engine) as connection:
        assert [row["seq"] for row in unheard(connection, again)] == list(range(5, 32))
        assert [row["seq"] for row in heard_before(connection, again)] == list(range(5))
    Recorder(engine, again, URL).end(heard(again, range(5, 32)))
    assert check_ended_job(engine, job_id)["succeeded"] == 32


def test_a_worker_frozen_in_the_middle_of_a_copy_does_not_hold_its_job_up(engine: Engine, database_url: str) -> None:
    tenant_id = make_tenant(engine)
    job_id, other = queue_job(engine, tenant_id, 1), queue_job(engine, tenant_id, 1)
    frozen = a_worker(engine, lease=0.0)
    taken(engine, frozen), taken(engine, frozen)
    sessions = make_engine(database_url, worker_sessions(frozen), pool_size=None)
    stuck = sessions.raw_connection()
    try:
        stuck.cursor().execute("SELECT 1 FROM job WHERE id = %s FOR UPDATE", (job_id,))
        with pytest.raises(OperationalError), stuck.cursor().copy("COPY verdict (job_id, seq) FROM STDIN") as copy:
            copy.write("half a row")  # the server waits for the rest: no time-out of it looks at such a session
            rescued: list[str] = []
            eventually(lambda: rescued.extend(rescue_lapsed(engine, URL)) or len(rescued) == 2, "both are rescued")
    finally:
        stuck.invalidate()
        sessions.dispose()
    assert {status(engine, job_id), status(engine, other)} == {"running"}


def test_a_worker_that_leaves_in_order_hands_its_chunk_back(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 4)
    worker = a_worker(engine)
    held = taken(engine, worker)
    Recorder(engine, held, URL).release(heard(held, range(2)))
    retire(engine, worker)
    assert rescue_lapsed(engine, URL) == []
    again = taken(engine, a_worker(engine))
    with transaction(engine) as connection:
        assert [row["seq"] for row in unheard(connection, again)] == [2, 3]
        assert connection.scalar(text("SELECT deaths FROM chunk")) == 0
    Recorder(engine, again, URL).end(heard(again, range(2, 4)))
    assert check_ended_job(engine, job_id)["status"] == "completed"


def test_cancelling_what_nobody_hears_ends_at_once(engine: Engine) -> None:
    tenant = make_tenant(engine)
    job_id = queue_job(engine, tenant, 100)
    with transaction(engine) as connection:
        assert cancel(connection, tenant, job_id, URL)["status"] == "cancelled"
    with transaction(engine) as connection:
        again = cancel(connection, tenant, job_id, URL)
    job = check_ended_job(engine, job_id)
    assert (again["version"], job["cancelled"]) == (job["version"], 100)


def test_cancelling_keeps_what_was_heard_and_ends_with_the_last_running_chunk(engine: Engine) -> None:
    tenant = make_tenant(engine)
    job_id = queue_job(engine, tenant, 100)
    held = taken(engine, a_worker(engine))
    recorder = Recorder(engine, held, URL)
    recorder.flush(heard(held, range(3)))
    with transaction(engine) as connection:
        assert cancel(connection, tenant, job_id, URL)["status"] == "cancelling"
    recorder.release(heard(held, range(3, 5)))
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["succeeded"], job["cancelled"]) == ("cancelled", 5, 95)


def test_a_cancel_outlives_the_worker_that_should_have_seen_it(engine: Engine) -> None:
    tenant = make_tenant(engine)
    job_id = queue_job(engine, tenant, 2)
    taken(engine, a_worker(engine, lease=0.0))
    with transaction(engine) as connection:
        cancel(connection, tenant, job_id, URL)
    assert status(engine, job_id) == "cancelling"
    assert rescue_lapsed(engine, URL) == []
    assert check_ended_job(engine, job_id)["status"] == "cancelled"


def test_a_deadline_ends_the_job_and_fences_who_runs_it(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 40)
    held = taken(engine, a_worker(engine))
    recorder = Recorder(engine, held, URL)
    recorder.flush(heard(held, range(7)))
    assert expire_overdue(engine, URL) == 0
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deadline = now()"))
    assert expire_overdue(engine, URL) == 1
    with pytest.raises(Fenced):
        recorder.end(heard(held, range(7, 32)))
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["succeeded"], job["expired"]) == ("expired", 7, 33)


def test_a_worker_that_finds_the_deadline_passed_ends_the_job_as_expired(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 40)
    held = taken(engine, a_worker(engine))
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deadline = now()"))
    Recorder(engine, held, URL).release(heard(held, range(4)))
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["succeeded"], job["expired"]) == ("expired", 4, 36)


def test_what_copy_refuses_is_told_without_the_row(engine: Engine) -> None:
    queue_job(engine, make_tenant(engine), 1)
    held = taken(engine, a_worker(engine))
    batch = heard(held, range(1))
    batch.traces *= 2
    with pytest.raises(IntegrityError) as caught:
        Recorder(engine, held, URL).flush(batch)
    assert "trace" in str(caught.value)
    assert held.job_id.hex not in str(caught.value).replace("-", "")


@pytest.mark.parametrize(("failed", "expected"), [(0, "completed"), (1, "completed_with_errors"), (3, "failed")])
def test_the_final_status_follows_the_items(engine: Engine, failed: int, expected: str) -> None:
    job_id = queue_job(engine, make_tenant(engine), 3)
    held = taken(engine, a_worker(engine))
    batch = heard(held, range(3))
    batch.verdicts = [
        (*row[:2], "failed", *[None] * 6, "unparseable", "no verdict", *row[11:]) if row[1] < failed else row
        for row in batch.verdicts
    ]
    Recorder(engine, held, URL).end(batch)
    assert check_ended_job(engine, job_id)["status"] == expected
