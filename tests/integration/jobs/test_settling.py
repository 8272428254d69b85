"""Settling what needs no runtime: it starts and ends its job, and one stage is not taken for another."""

import pytest
from sqlalchemy import Connection, Engine, RowMapping, text

from services.foundation.database import transaction
from services.jobs.record import Batch
from services.jobs.settle import settle_next
from services.vocabulary import Stage
from tests.factories import make_tenant, queue_job

URL = "http://assizes.test"


@pytest.mark.parametrize(("answered", "status"), [(8, "completed"), (5, "expired")])
def test_a_job_that_needs_no_runtime(engine: Engine, answered: int, status: str) -> None:
    job_id = queue_job(engine, make_tenant(engine), 8)
    with transaction(engine) as connection:
        connection.execute(text("UPDATE chunk SET stage = 'reread', model = 'cpu'"))
        connection.execute(text("UPDATE job SET reread_of = id"))

    def answer(connection: Connection, chunk: RowMapping) -> Batch:
        places = range(chunk["first_seq"], chunk["end_seq"])[:answered]
        return Batch(verdicts=[(job_id, seq, "succeeded", "A", *[None] * 7, 0, 0, 0, 0) for seq in places])

    assert not settle_next(engine, Stage.CONCLUDE, answer, URL)
    assert settle_next(engine, Stage.REREAD, answer, URL)
    assert not settle_next(engine, Stage.REREAD, answer, URL)
    with transaction(engine) as connection:
        job = connection.execute(text("SELECT * FROM job")).mappings().one()
    assert (job["status"], job["succeeded"], job["expired"]) == (status, answered, 8 - answered)
    assert job["started_at"] is not None
