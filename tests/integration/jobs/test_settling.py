"""Settling what needs no runtime: it starts and ends its job, and one stage is not taken for another."""

from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from services.foundation.database import transaction
from services.jobs.record import Batch
from services.jobs.settle import NEXT, settle_next
from services.vocabulary import Stage
from tests.factories import make_tenant, queue_job

URL = "http://assizes.test"
# Of the items 4 and 5: two calls that were answered, and one that was never sent.
HEARD = text(
    """
    INSERT INTO trace (day, job_id, seq, stage, judge, call, slots, sample, forced, epoch_id, outcome, reading,
                       prompt_tokens, cached_tokens, completion_tokens, sent_at)
    SELECT day, id, seq, 'hear', 'judge', call, '{}', 0, false, id, 'decided', '{}', 15, 2, 3,
           CASE WHEN call < 2 THEN now() END
    FROM job, generate_series(4, 5) AS seq, generate_series(0, 2) AS call
    """
)
FAILED = text(
    """
    SELECT seq, error_code, calls, prompt_tokens, cached_tokens, completion_tokens FROM verdict WHERE status = 'failed'
    """
)


@pytest.mark.parametrize(("answered", "status"), [(8, "completed"), (5, "expired")])
def test_a_job_that_needs_no_runtime(engine: Engine, answered: int, status: str) -> None:
    job_id = queue_job(engine, make_tenant(engine), 8)
    with transaction(engine) as connection:
        connection.execute(text("UPDATE chunk SET stage = 'reread', model = 'cpu'"))
        connection.execute(text("UPDATE job SET reread_of = id"))

    def answer(connection: Connection, chunk: Mapping[str, Any]) -> Batch:
        places = range(chunk["first_seq"], chunk["end_seq"])[:answered]
        return Batch(verdicts=[(job_id, seq, "succeeded", "A", *[None] * 7, 0, 0, 0, 0) for seq in places])

    assert not settle_next(engine, Stage.CONCLUDE, answer, URL)
    assert settle_next(engine, Stage.REREAD, answer, URL)
    assert not settle_next(engine, Stage.REREAD, answer, URL)
    with transaction(engine) as connection:
        job = connection.execute(text("SELECT * FROM job")).mappings().one()
    assert (job["status"], job["succeeded"], job["expired"]) == (status, answered, 8 - answered)
    assert job["started_at"] is not None


def test_an_item_that_cannot_be_settled_fails_and_holds_up_no_other(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 8)
    with transaction(engine) as connection:
        connection.execute(text("UPDATE chunk SET stage = 'conclude', model = 'cpu'"))
        connection.execute(HEARD)

    def answer(connection: Connection, chunk: Mapping[str, Any]) -> Batch:
        places = range(chunk["first_seq"], chunk["end_seq"])
        if 5 in places:
            raise ValueError("the fifth")
        return Batch(verdicts=[(job_id, seq, "succeeded", "A", *[None] * 7, 0, 0, 0, 0) for seq in places])

    assert settle_next(engine, Stage.CONCLUDE, answer, URL)
    with transaction(engine) as connection:
        job = connection.execute(text("SELECT * FROM job")).mappings().one()
        failed = connection.execute(FAILED).all()
    assert (job["status"], job["succeeded"], job["failed"]) == ("completed_with_errors", 7, 1)
    assert failed == [(5, "runtime_error", 2, 30, 4, 6)]  # what was sent for it


def test_what_breaks_down_at_every_item_is_put_off_and_fails_none(engine: Engine) -> None:
    queue_job(engine, make_tenant(engine), 8)
    with transaction(engine) as connection:
        connection.execute(text("UPDATE chunk SET stage = 'conclude', model = 'cpu'"))

    def answer(connection: Connection, chunk: Mapping[str, Any]) -> Batch:
        raise ValueError("a fault of ours")

    assert settle_next(engine, Stage.CONCLUDE, answer, URL)
    assert not settle_next(engine, Stage.CONCLUDE, answer, URL)  # for a minute
    with transaction(engine) as connection:
        assert connection.scalar(text("SELECT count(*) FROM verdict")) == 0
        assert connection.scalar(text("SELECT state FROM chunk")) == "queued"


@pytest.mark.parametrize("stage", [Stage.CONCLUDE, Stage.REREAD])
def test_the_next_chunk_is_found_behind_any_backlog_of_another_stage(engine: Engine, stage: Stage) -> None:
    with transaction(engine) as connection:
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        connection.execute(text("SET LOCAL enable_bitmapscan = off"))
        plan = connection.execute(text(f"EXPLAIN {NEXT.text}"), {"stage": stage}).scalars().all()
    assert any("chunk_settleable" in line for line in plan), plan
    assert any("Index Cond: (stage = " in line for line in plan), plan
    assert not any("Sort" in line for line in plan), plan
