"""Stages: the next one opens for an ordinal with the last chunk of the one before, once."""

from enum import StrEnum
from typing import cast

from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.jobs.conclude import lock_job
from services.jobs.stages import Step, follow, plan
from services.vocabulary import JobKind, Stage
from tests.factories import MODEL, make_tenant, queue_job


class Later(StrEnum):
    """A stage that a job could have."""

    AFTER = "after"


TWO_STEPS = (Step(Stage.HEAR, (MODEL, "other")), Step(cast(Stage, Later.AFTER), ("third", "fourth")))

SECOND_JUDGE = text(
    """
    INSERT INTO chunk (job_id, stage, ordinal, part, model, first_seq, end_seq, priority, state)
    SELECT job_id, stage, ordinal, part, 'other', first_seq, end_seq, priority, state FROM chunk
    """
)
FINISH = text("UPDATE chunk SET state = 'finished' WHERE ordinal = :ordinal AND model = :model AND stage = 'hear'")
OPENED = text("SELECT ordinal, model, first_seq, end_seq, state FROM chunk WHERE stage = 'after' ORDER BY model")


def test_a_stage_opens_once_every_model_has_finished_the_one_before(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 40)
    with transaction(engine) as connection:
        connection.execute(SECOND_JUDGE)
    for model, opened in ((MODEL, ()), ("other", ("third", "fourth"))):
        with transaction(engine) as connection:
            lock_job(connection, job_id)
            connection.execute(FINISH, {"ordinal": 1, "model": model})
            assert follow(connection, job_id, TWO_STEPS, Stage.HEAR, 1) == opened
    with transaction(engine) as connection:
        rows = [tuple(row) for row in connection.execute(OPENED)]
    assert rows == [(1, "fourth", 32, 40, "queued"), (1, "third", 32, 40, "queued")]


def test_a_judgement_by_one_judge_has_one_stage(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 1)
    with transaction(engine) as connection:
        assert follow(connection, job_id, plan(JobKind.JUDGEMENT, [MODEL]), Stage.HEAR, 0) == ()
