"""Stages: all chunks are there from the start; what waits is queued by the last chunk of the stage before, once."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.jobs.claim import Claim
from services.jobs.record import Recorder
from tests.factories import MODEL, make_tenant, queue_job
from tests.hearings import a_worker, heard, taken

URL = "http://assizes.test"
JUDGES = (MODEL, "other", "third")

CHUNKS = text(
    """
    SELECT stage, ordinal, model, first_seq, end_seq, state, settles FROM chunk WHERE job_id = :job_id
    ORDER BY stage DESC, ordinal, model
    """
)


def chunks(engine: Engine, job_id: UUID) -> list[tuple[object, ...]]:
    with transaction(engine) as connection:
        return [tuple(row) for row in connection.execute(CHUNKS, {"job_id": job_id})]


def joins(engine: Engine, job_id: UUID) -> list[object]:
    """The states of the chunks that join opinions, by ordinal."""
    return [state for stage, *_, state, _ in chunks(engine, job_id) if stage == "conclude"]


def test_a_judgement_by_one_judge_has_one_stage(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 40)
    assert chunks(engine, job_id) == [
        ("hear", 0, MODEL, 0, 32, "queued", True),
        ("hear", 1, MODEL, 32, 40, "queued", True),
    ]


def test_a_panel_is_laid_out_whole_and_its_conclusions_wait(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 40, judges=["other", MODEL])
    assert chunks(engine, job_id) == [
        ("hear", 0, "other", 0, 32, "queued", False),
        ("hear", 0, MODEL, 0, 32, "queued", False),
        ("hear", 1, "other", 32, 40, "queued", False),
        ("hear", 1, MODEL, 32, 40, "queued", False),
        ("conclude", 0, "cpu", 0, 32, "waiting", True),
        ("conclude", 1, "cpu", 32, 40, "waiting", True),
    ]


@pytest.mark.parametrize("judges", [JUDGES[:2], JUDGES])
def test_a_conclusion_is_queued_by_the_last_judge_of_its_ordinal(engine: Engine, judges: tuple[str, ...]) -> None:
    job_id = queue_job(engine, make_tenant(engine), 40, judges=judges)
    for judge in judges:
        assert joins(engine, job_id) == ["waiting", "waiting"]
        held = taken(engine, a_worker(engine, judge), judge)
        Recorder(engine, held, URL).end(heard(held, range(32)))
    assert joins(engine, job_id) == ["queued", "waiting"]


def test_a_chunk_handed_back_keeps_the_conclusion_waiting(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 4, judges=JUDGES[:2])
    for judge in JUDGES[:2]:
        held = taken(engine, a_worker(engine, judge), judge)
        Recorder(engine, held, URL).release(heard(held, range(4)))
    assert joins(engine, job_id) == ["waiting"]


def test_two_judges_that_end_at_once_queue_the_conclusion_once(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 320, judges=JUDGES[:2])
    held = [
        [taken(engine, worker, judge) for _ in range(10)]
        for judge in JUDGES[:2]
        for worker in [a_worker(engine, judge)]
    ]
    together = Barrier(2)

    def end_all(claims: list[Claim]) -> None:
        for claim in claims:
            batch = heard(claim, range(claim.first_seq, claim.end_seq))
            together.wait(30)
            Recorder(engine, claim, URL).end(batch)

    with ThreadPoolExecutor(2) as pool:
        for ended in [pool.submit(end_all, claims) for claims in held]:
            ended.result()
    assert joins(engine, job_id) == ["queued"] * 10
