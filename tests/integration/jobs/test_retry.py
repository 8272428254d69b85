"""Trying again what an ended job left without an answer: which items, as what they are heard, and what is refused."""

import json
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.foundation.errors import Conflict, Invalid, NotFound, NothingToRetry
from services.foundation.fleet import Fleet, FleetModel
from services.jobs.cancel import cancel
from services.jobs.queries import load_job
from services.jobs.record import Batch, Recorder
from services.jobs.request import read_job_with_items
from services.jobs.reread import read_reread, submit_reread
from services.jobs.rescue import expire_overdue
from services.jobs.results import stream_results
from services.jobs.retry import read_retry, submit_retry
from services.jobs.submit import submit
from services.vocabulary import ItemStatus
from tests import stages
from tests.factories import FLEET, MODEL, comparisons, make_tenant, queue_job
from tests.hearings import a_worker, heard, taken
from tests.invariants import check_ended_job

URL = "http://assizes.test"
EVERY = read_retry(b"")


def test_whatever_has_no_answer_can_be_tried_again() -> None:
    unanswered = [status for status in ItemStatus if status is not ItemStatus.SUCCEEDED]
    assert sorted(EVERY) == sorted(unanswered)
    assert read_retry(json.dumps({"only": unanswered}).encode()) == unanswered


@pytest.fixture
def tenant(engine: Engine) -> UUID:
    """A tenant."""
    return make_tenant(engine)


def failing(batch: Batch, *seqs: int) -> Batch:
    """The same batch, in which these items failed."""
    batch.verdicts = [
        (*verdict[:2], "failed", *[None] * 6, "unparseable", "no verdict", *verdict[11:])
        if verdict[1] in seqs
        else verdict
        for verdict in batch.verdicts
    ]
    return batch


def half_heard(engine: Engine, tenant: UUID, items: int = 70, **request: Any) -> UUID:
    """A running job whose first chunk has ended: every third item of it failed."""
    job_id = queue_job(engine, tenant, items, **request)
    held = taken(engine, a_worker(engine))
    assert held.job_id == job_id
    Recorder(engine, held, URL).end(failing(heard(held, range(32)), *range(0, 32, 3)))
    return job_id


def cancelled(engine: Engine, tenant: UUID, job_id: UUID) -> UUID:
    with transaction(engine) as connection:
        cancel(connection, tenant, job_id, URL)
    return job_id


def expired(engine: Engine, tenant: UUID, job_id: UUID) -> UUID:
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deadline = now() WHERE id = :id"), {"id": job_id})
    assert expire_overdue(engine, URL) == 1
    return job_id


def retried(engine: Engine, tenant: UUID, job_id: UUID, *only: str, fleet: Fleet = FLEET) -> UUID:
    return submit_retry(engine, tenant, job_id, [ItemStatus(one) for one in only] or EVERY, fleet).job_id


def items(engine: Engine, job_id: UUID) -> list[tuple[int, str, str]]:
    """Place, custom id and text of each item."""
    statement = "SELECT seq, custom_id, input FROM item WHERE job_id = :job_id ORDER BY seq"
    return [tuple(row) for row in rows(engine, statement, job_id=job_id)]


def rows(engine: Engine, statement: str, **values: object) -> list[Any]:
    with transaction(engine) as connection:
        return list(connection.execute(text(statement), values))


def shown(engine: Engine, tenant: UUID, job_id: UUID) -> dict[str, Any]:
    with transaction(engine) as connection:
        job: dict[str, Any] = json.loads(load_job(connection, tenant, job_id).as_json())
    return job


@pytest.mark.parametrize(
    ("end", "only", "which"),
    [
        (cancelled, (), [*range(0, 32, 3), *range(32, 70)]),
        (expired, (), [*range(0, 32, 3), *range(32, 70)]),
        (cancelled, ("failed",), [*range(0, 32, 3)]),
        (cancelled, ("cancelled",), [*range(32, 70)]),
        (cancelled, ("expired", "failed"), [*range(0, 32, 3)]),
        (expired, ("expired",), [*range(32, 70)]),
    ],
)
def test_just_those_items_in_their_order(
    engine: Engine,
    tenant: UUID,
    end: Callable[[Engine, UUID, UUID], UUID],
    only: tuple[str, ...],
    which: list[int],
) -> None:
    job_id = end(engine, tenant, half_heard(engine, tenant))
    before = items(engine, job_id)
    again = retried(engine, tenant, job_id, *only)
    assert items(engine, again) == [(place, *before[seq][1:]) for place, seq in enumerate(which)]
    assert items(engine, job_id) == before
    assert shown(engine, tenant, again)["counts"]["queued"] == len(which)


def test_a_retry_is_heard_to_its_end_and_can_be_retried(engine: Engine, tenant: UUID) -> None:
    job_id = cancelled(engine, tenant, half_heard(engine, tenant))
    again = retried(engine, tenant, job_id)
    worker = a_worker(engine)
    first, second = taken(engine, worker), taken(engine, worker)
    assert [(held.job_id, held.first_seq, held.end_seq) for held in (first, second)] == [
        (again, 0, 32),
        (again, 32, 49),
    ]
    Recorder(engine, first, URL).end(failing(heard(first, range(32)), 7, 9))
    Recorder(engine, second, URL).end(heard(second, range(32, 49)))
    job = check_ended_job(engine, again)
    assert (job["status"], job["succeeded"], job["failed"]) == ("completed_with_errors", 47, 2)
    third = retried(engine, tenant, again)
    names = [name for _, name, _ in items(engine, third)]
    assert names == ['"q21"', '"q27"']
    assert shown(engine, tenant, third)["retry_of"] == shown(engine, tenant, again)["id"]


def test_what_comes_to_an_answer_in_two_jobs_is_every_item_once(engine: Engine, tenant: UUID) -> None:
    job_id = cancelled(engine, tenant, half_heard(engine, tenant))
    again = retried(engine, tenant, job_id)
    worker = a_worker(engine)
    for _ in range(2):
        held = taken(engine, worker)
        Recorder(engine, held, URL).end(heard(held, range(held.first_seq, held.end_seq)))
    answered = [
        line["custom_id"]
        for one in (job_id, again)
        for page in stream_results(engine, tenant, one)
        for line in map(json.loads, page)
        if line["status"] == "succeeded"
    ]
    assert sorted(answered) == sorted(f"q{number}" for number in range(70))


def test_the_settings_are_those_of_the_old_job_and_the_deadline_is_new(engine: Engine, tenant: UUID) -> None:
    callback = {"url": "https://example.org/hook", "events": ["job.failed"], "include": "summary"}
    metadata = {"run": "42", "tags": ["a"]}
    job_id = half_heard(
        engine,
        tenant,
        name="nightly",
        priority="bulk",
        callback=callback,
        metadata=metadata,
        options={"orders": "given", "tie_margin": 0.125},
    )
    expired(engine, tenant, job_id)
    old, new = shown(engine, tenant, job_id), shown(engine, tenant, retried(engine, tenant, job_id))
    same = ("kind", "judges", "options", "panel", "name", "priority", "callback", "metadata", "model", "committee")
    assert {name: new[name] for name in same} == {name: old[name] for name in same}
    assert (new["retry_of"], new["reread_of"], old["retry_of"]) == (old["id"], None, None)
    (row,) = rows(engine, "SELECT deadline - created_at AS time FROM job WHERE retry_of IS NOT NULL")
    assert row.time == timedelta(days=7)
    changed = FLEET.model_copy(
        update={"models": {**FLEET.models, MODEL: FLEET.models[MODEL].model_copy(update={"options": {}})}}
    )
    again = shown(engine, tenant, retried(engine, tenant, job_id, fleet=changed))
    assert again["options"] == old["options"]


def test_texts_that_no_json_column_holds_come_along(engine: Engine, tenant: UUID) -> None:
    nul = [{**item, "custom_id": f"{item['custom_id']}\0\ud800/x"} for item in comparisons(2)]
    job_id = cancelled(engine, tenant, queue_job(engine, tenant, nul))
    assert items(engine, retried(engine, tenant, job_id)) == items(engine, job_id)


def test_a_panel_and_a_reappraisal_are_laid_out_as_before(engine: Engine, tenant: UUID) -> None:
    laid_out = """
        SELECT stage, ordinal, model, first_seq, end_seq, step, state, settles, calls_per_item FROM chunk
        WHERE job_id = :job_id ORDER BY step, ordinal, model
    """
    panel = {"judges": [MODEL, "other"], "options": {"mode": "reason", "samples": 3}}
    scenes = [{"custom_id": f"s{seq}", "scenario": f"scenario {seq}", "baseline": "theirs"} for seq in range(5)]
    written = {"kind": "reappraisal", "model": "writer", "options": {"candidates": 2, "committee": "anchored"}}
    for fleet, listed, request in ((FLEET, comparisons(50), panel), (stages.FLEET, scenes, written)):
        body = {"kind": "judgement", **request, "items": listed}
        submission, inline = read_job_with_items(json.dumps(body).encode(), fleet)
        job_id = submit(engine, tenant, submission, inline).job_id
        fresh = [tuple(row) for row in rows(engine, laid_out, job_id=job_id)]
        with transaction(engine) as connection:
            cancel(connection, tenant, job_id, URL)
        again = retried(engine, tenant, job_id, fleet=fleet)
        assert [tuple(row) for row in rows(engine, laid_out, job_id=again)] == fresh


def test_a_scenario_that_failed_is_written_anew(engine: Engine, tenant: UUID) -> None:
    scenes = [{"custom_id": f"s{seq}", "scenario": f"scenario {seq}"} for seq in range(2)]
    request = {"kind": "reappraisal", "model": "writer", "options": {"candidates": 1}}
    job_id = queue_job(engine, tenant, scenes, fleet=stages.FLEET, **request)
    stages.write(engine, stages.TOO_LONG)
    assert stages.settle(engine) == 1
    again = retried(engine, tenant, job_id, "failed", fleet=stages.FLEET)
    stages.write(engine, stages.ACCEPTED)
    assert stages.settle(engine) == 1
    job = check_ended_job(engine, again, calls=False)
    assert (job["status"], job["succeeded"]) == ("completed", 2)


def test_an_item_that_was_run_alone_is_no_measure_of_chunks(engine: Engine, tenant: UUID) -> None:
    job_id = cancelled(engine, tenant, queue_job(engine, tenant, 70))
    with transaction(engine) as connection:
        split = "UPDATE chunk SET end_seq = first_seq + 1 WHERE job_id = :id AND ordinal = :ordinal"
        for ordinal in range(3):
            connection.execute(text(split), {"id": job_id, "ordinal": ordinal})
        connection.execute(
            text(
                """
                INSERT INTO chunk (job_id, stage, ordinal, part, model, first_seq, end_seq, priority, step, state,
                                   calls_per_item, settles, finished_version)
                SELECT job_id, stage, ordinal, 1, model, first_seq + 1, least(first_seq + 32, 70), priority, step,
                       state, calls_per_item, settles, finished_version
                FROM chunk WHERE job_id = :id
                """
            ),
            {"id": job_id},
        )
    again = retried(engine, tenant, job_id)
    sizes = rows(engine, "SELECT end_seq - first_seq AS size FROM chunk WHERE job_id = :id ORDER BY ordinal", id=again)
    assert [row.size for row in sizes] == [32, 32, 6]


def test_two_retries_at_once_are_two_jobs(engine: Engine, tenant: UUID) -> None:
    job_id = cancelled(engine, tenant, half_heard(engine, tenant))
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda _: retried(engine, tenant, job_id), range(2))
    assert one != two
    assert items(engine, one) == items(engine, two)


def test_what_cannot_be_tried_again(engine: Engine, tenant: UUID) -> None:
    job_id = half_heard(engine, tenant)
    with pytest.raises(Conflict, match="not ended"):
        retried(engine, tenant, job_id)
    cancelled(engine, tenant, job_id)
    for _ in range(2):
        with pytest.raises(NothingToRetry, match="expired"):
            retried(engine, tenant, job_id, "expired")
    with pytest.raises(NotFound):
        retried(engine, make_tenant(engine, "umbrella"), job_id)
    with pytest.raises(NotFound):
        retried(engine, tenant, tenant)
    request, metadata = read_reread(b"")
    again = submit_reread(engine, tenant, job_id, request, metadata, FLEET).job_id
    cancelled(engine, tenant, again)
    with pytest.raises(Conflict, match="another one"):
        retried(engine, tenant, again)
    assert rows(engine, "SELECT 1 FROM job WHERE retry_of IS NOT NULL") == []
    assert rows(engine, "SELECT 1 FROM item LEFT JOIN job ON job.id = item.job_id WHERE job.id IS NULL") == []


def other_fleet(**protocols: str) -> Fleet:
    return Fleet(models={name: FleetModel(name=name, protocol=one, weights="w") for name, one in protocols.items()})


@pytest.mark.parametrize(
    ("protocols", "codes"),
    [
        ({"other": "sdrm"}, ["unknown_model"]),
        ({MODEL: "reward"}, ["unsuitable_model"]),
        ({MODEL: "genrm"}, ["invalid_value"]),  # it has no direct mode
        ({MODEL: "sdrm"}, []),
    ],
)
def test_a_fleet_that_has_changed(engine: Engine, tenant: UUID, protocols: dict[str, str], codes: list[str]) -> None:
    job_id = cancelled(engine, tenant, half_heard(engine, tenant))
    if not codes:
        retried(engine, tenant, job_id, fleet=other_fleet(**protocols))
        return
    with pytest.raises(Invalid) as caught:
        retried(engine, tenant, job_id, fleet=other_fleet(**protocols))
    assert [(fault.code, fault.pointer) for fault in caught.value.faults] == [(code, "") for code in codes]
    assert all(MODEL in fault.message for fault in caught.value.faults)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"writer": "sdrm"}, "unsuitable_model"),
        ({"judge": "reappraisal"}, "unsuitable_model"),
        ({"a": "sdrm"}, "unsuitable_model"),
        ({"b": None}, "unknown_model"),
    ],
)
def test_a_committee_that_has_changed(engine: Engine, tenant: UUID, changed: dict[str, str | None], code: str) -> None:
    scenes = [{"custom_id": "s", "scenario": "scenario", "baseline": "theirs"}]
    options = {"candidates": 2, "committee": "anchored", "compare": "judge"}
    job_id = queue_job(engine, tenant, scenes, fleet=stages.FLEET, kind="reappraisal", model="writer", options=options)
    cancelled(engine, tenant, job_id)
    now = {name: model.protocol for name, model in stages.FLEET.models.items()} | changed
    fleet = other_fleet(**{name: protocol for name, protocol in now.items() if protocol})
    with pytest.raises(Invalid) as caught:
        retried(engine, tenant, job_id, fleet=fleet)
    assert [fault.code for fault in caught.value.faults] == [code]


def test_ten_thousand_items_take_no_more_memory_than_ten(engine: Engine, tenant: UUID) -> None:
    few = cancelled(engine, tenant, queue_job(engine, tenant, 10))
    many = cancelled(engine, tenant, queue_job(engine, tenant, 10_000))
    retried(engine, tenant, few)

    def peak(job_id: UUID) -> int:
        tracemalloc.start()
        try:
            retried(engine, tenant, job_id)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(many) < peak(few) + (64 << 10)
