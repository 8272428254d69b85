"""Reappraisals between their stages: what waits, what is chosen, and what is left at a deadline or a cancel."""

import json
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.foundation.errors import Conflict
from services.jobs.cancel import cancel
from services.jobs.claim import claim
from services.jobs.queries import load_job
from services.jobs.record import Batch, Recorder
from services.jobs.reread import read_reread, submit_reread
from services.jobs.rescue import expire_overdue
from services.jobs.results import stream_results
from services.vocabulary import Outcome, Winner
from tests.factories import make_tenant, queue_job
from tests.hearings import a_worker
from tests.invariants import check_ended_job
from tests.stages import ACCEPTED, FAILED, FLEET, TOO_LONG, URL, an_epoch, compare, hold, score, settle, write


@pytest.fixture
def tenant(engine: Engine) -> UUID:
    """A tenant."""
    return make_tenant(engine)


def queue(engine: Engine, tenant: UUID, count: int, **options: Any) -> UUID:
    items = [{"custom_id": f"s{seq}", "scenario": f"scenario {seq}", "baseline": "theirs"} for seq in range(count)]
    body = {"kind": "reappraisal", "model": "writer", "options": {"candidates": 2, **options}}
    return queue_job(engine, tenant, items, fleet=FLEET, **body)


def results(engine: Engine, tenant: UUID, job_id: UUID) -> list[dict[str, Any]]:
    return [json.loads(line) for page in stream_results(engine, tenant, job_id) for line in page]


def counts(engine: Engine, tenant: UUID, job_id: UUID) -> dict[str, int]:
    with transaction(engine) as connection:
        job = json.loads(load_job(connection, tenant, job_id).as_json())
    return {name: number for name, number in job["counts"].items() if number and name != "total"}


def end_deadline(engine: Engine) -> None:
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deadline = now()"))
    expire_overdue(engine, URL)


def test_each_stage_waits_for_the_one_before(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 2, committee="within", compare="judge")
    assert counts(engine, tenant, job_id) == {"queued": 2}
    for model in ("a", "b", "judge"):
        assert claim(engine, a_worker(engine, model), model) is None
    write(engine, ACCEPTED, TOO_LONG, ACCEPTED)
    assert counts(engine, tenant, job_id) == {"running": 2}
    score(engine, "a", [0.0, 1.0])
    assert settle(engine) == 0
    score(engine, "b", [5.0, 9.0])
    assert settle(engine) == 1
    assert results(engine, tenant, job_id) == []
    compare(engine, Winner.B)
    assert settle(engine) == 1
    for line in results(engine, tenant, job_id):
        written = line["reappraisal"]
        assert (written["selected"], written["text"], written["eligible"]) == (2, "text 2", [0, 2])
        assert [one["score"] for one in written["candidates"]] == [-1.0, None, 1.0]
        assert (written["comparison"]["winner"], written["comparison"]["reason"]) == ("B", None)
        assert written["flags"] == ["injection_suspected"]


def test_without_a_committee_the_first_accepted_text_stands(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 1)
    write(engine, TOO_LONG, ACCEPTED, ACCEPTED)
    assert settle(engine) == 1
    (line,) = results(engine, tenant, job_id)
    written = line["reappraisal"]
    assert (written["selected"], written["committee"]) == (1, None)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((TOO_LONG, Outcome.TRUNCATED), "gated"),
        ((Outcome.EMPTY,), "gated"),
        ((Outcome.TRUNCATED, Outcome.TRUNCATED), "truncated"),
        ((Outcome.UNPARSEABLE, Outcome.TRUNCATED), "truncated"),
        ((FAILED, TOO_LONG), "runtime_error"),
        ((Outcome.UNPARSEABLE, TOO_LONG), "gated"),
        ((Outcome.CONTEXT_OVERFLOW,), "context_overflow"),
        ((FAILED,), "runtime_error"),
    ],
)
def test_an_item_fails_when_no_text_passes(
    engine: Engine, tenant: UUID, outcomes: tuple[Outcome, ...], code: str
) -> None:
    job_id = queue(engine, tenant, 1, committee="within", compare="judge")
    write(engine, *outcomes)
    score(engine, "a", [])
    score(engine, "b", [])
    assert settle(engine) == 1
    Recorder(engine, hold(engine, "judge"), URL).end(Batch())
    assert settle(engine) == 1
    (line,) = results(engine, tenant, job_id)
    assert (line["status"], line["error"]["code"], line["reappraisal"]["text"]) == ("failed", code, None)
    assert [one["outcome"] for one in line["reappraisal"]["candidates"]] == list(outcomes)


def test_a_missing_score_takes_its_text_out_of_the_choice(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 1, committee="within")
    write(engine, ACCEPTED, ACCEPTED, ACCEPTED)
    score(engine, "a", [9.0, 1.0, 2.0])
    score(engine, "b", [None, 1.0, 2.0])
    settle(engine)
    (line,) = results(engine, tenant, job_id)
    best, *others = line["reappraisal"]["candidates"]
    assert (best["score"], best["missing"]) == (None, ["b"])
    assert {member: score["raw"] for member, score in best["scores"].items()} == {"a": 9.0, "b": None}
    assert best["models"]["b"] == {"raw": None, "outcome": "failed", "valid": 0, "asked": 1}
    assert [one["score"] for one in others] == [-1.0, 1.0]
    assert line["reappraisal"]["selected"] == 2

    other = queue(engine, tenant, 1, committee="within")
    write(engine, ACCEPTED)
    score(engine, "a", [9.0])
    score(engine, "b", [None])
    settle(engine)
    (line,) = results(engine, tenant, other)
    assert line["error"] == {
        "code": "runtime_error",
        "message": "no text was scored by every member of the committee: b did not score them all",
    }


def test_scores_count_by_the_anchors_of_their_own_epoch(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 1, committee="anchored")
    write(engine, ACCEPTED, ACCEPTED)
    shifted = [100.0 + value for value in (-1, 1)] * 20
    score(engine, "a", [101.0, 99.0], an_epoch(engine, "a", job_id, shifted))
    score(engine, "b", [4.0, 2.0], an_epoch(engine, "b", job_id, [None] * 8 + [-2.0, 2.0] * 16))
    settle(engine)
    (line,) = results(engine, tenant, job_id)
    scores = [one["scores"] for one in line["reappraisal"]["candidates"]]
    assert [{member: score["z"] for member, score in one.items()} for one in scores] == [
        {"a": 1.0, "b": 2.0},
        {"a": -1.0, "b": 1.0},
    ]
    assert [one["score"] for one in line["reappraisal"]["candidates"]] == [1.25, -0.5]


@pytest.mark.parametrize(
    ("anchors", "told"),
    [([0.0] * 40, "b gives every anchor the same score"), ([None] * 9 + [0.0, 1.0] * 15 + [0.0], "b scored 31 of the")],
)
def test_a_member_that_cannot_be_put_on_a_scale_fails_its_items(
    engine: Engine, tenant: UUID, anchors: list[float | None], told: str
) -> None:
    job_id = queue(engine, tenant, 1, committee="anchored")
    write(engine, ACCEPTED)
    score(engine, "a", [1.0], an_epoch(engine, "a", job_id, [0.0, 1.0] * 20))
    score(engine, "b", [1.0], an_epoch(engine, "b", job_id, anchors))
    settle(engine)
    (line,) = results(engine, tenant, job_id)
    assert (line["status"], line["error"]["code"]) == ("failed", "runtime_error")
    assert line["error"]["message"].startswith(told)


def test_what_is_chosen_at_the_deadline_stands_without_its_comparison(engine: Engine, tenant: UUID) -> None:
    """Of the job's four chunks one is chosen, one about to be; of one a member was not there, one was not written."""
    job_id = queue(engine, tenant, 84, committee="within", compare="judge")
    for _ in range(3):
        write(engine, ACCEPTED, ACCEPTED)
    score(engine, "a", [1.0, 2.0])
    score(engine, "b", [1.0, 2.0])
    assert settle(engine) == 1
    score(engine, "a", [1.0, 2.0])
    score(engine, "b", [1.0, 2.0])
    score(engine, "a", [1.0, 2.0])
    end_deadline(engine)
    before = version(engine, job_id)
    assert expire_overdue(engine, URL) == 0
    assert version(engine, job_id) == before  # another look changes nothing
    assert settle(engine) == 5
    job = check_ended_job(engine, job_id, calls=False)
    assert (job["status"], job["succeeded"], job["expired"]) == ("expired", 42, 42)
    lines = {line["seq"]: line for line in results(engine, tenant, job_id)}
    for seq in (0, 41):
        assert lines[seq]["reappraisal"]["text"] == "text 1"
        assert lines[seq]["reappraisal"]["comparison"]["reason"] == "missing"
    late = lines[42]
    assert (late["status"], late["reappraisal"]["absent"], late["reappraisal"]["text"]) == ("expired", ["b"], None)
    assert late["reappraisal"]["candidates"][1]["scores"]["a"] == {"raw": 2.0, "z": None}
    assert late["reappraisal"]["candidates"][1]["missing"] == ["b"]
    assert (lines[83]["status"], lines[83]["reappraisal"]) == ("expired", None)


def version(engine: Engine, job_id: UUID) -> int:
    with transaction(engine) as connection:
        found: int = connection.execute(text("SELECT version FROM job WHERE id = :id"), {"id": job_id}).scalar_one()
    return found


def test_a_scoring_job_names_the_member_that_was_not_there(engine: Engine, tenant: UUID) -> None:
    item = {"custom_id": "r", "context": [{"role": "user", "content": "Why?"}], "response": "So."}
    job_id = queue_job(engine, tenant, [item], fleet=FLEET, kind="scoring", committee="anchored")
    score(engine, "a", [3.0], an_epoch(engine, "a", job_id, [0.0, 1.0] * 20))
    end_deadline(engine)
    assert settle(engine) == 1
    assert check_ended_job(engine, job_id, calls=False)["status"] == "expired"
    (line,) = results(engine, tenant, job_id)
    assert (line["status"], line["absent"], line["score"], line["missing"]) == ("expired", ["b"], None, ["b"])
    assert line["scores"] == {"a": {"raw": 3.0, "z": None}, "b": {"raw": None, "z": None}}


def test_one_text_alone_is_chosen_without_a_score_by_group(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 1, committee="within")
    write(engine, TOO_LONG, ACCEPTED)
    score(engine, "a", [7.0])
    score(engine, "b", [-7.0])
    settle(engine)
    (line,) = results(engine, tenant, job_id)
    chosen = line["reappraisal"]["candidates"][1]
    assert (line["reappraisal"]["selected"], chosen["score"], chosen["missing"]) == (1, None, [])


@pytest.mark.parametrize("scores", [[1e300, 1.0], [1e308, 1e308]])
def test_scores_that_no_arithmetic_can_hold_fail_their_item(engine: Engine, tenant: UUID, scores: list[float]) -> None:
    job_id = queue(engine, tenant, 1, committee="within")
    write(engine, ACCEPTED, ACCEPTED)
    score(engine, "a", scores)
    score(engine, "b", [1.0, 2.0])
    settle(engine)
    (line,) = results(engine, tenant, job_id)
    assert line["error"] == {"code": "runtime_error", "message": "a model gave a score that is beyond 1e+100"}


def test_a_cancel_between_the_stages_stays_a_cancel(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 4, committee="within", compare="judge")
    write(engine, ACCEPTED)
    held = hold(engine, "a")
    with transaction(engine) as connection:
        cancel(connection, tenant, job_id, URL)
    Recorder(engine, held, URL).release(Batch())
    assert settle(engine) == 0
    job = check_ended_job(engine, job_id, calls=False)
    assert (job["status"], job["cancelled"]) == ("cancelled", 4)
    assert {line["status"] for line in results(engine, tenant, job_id)} == {"cancelled"}


def test_only_judgements_are_read_again(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 1)
    write(engine, ACCEPTED)
    settle(engine)
    with pytest.raises(Conflict, match="only a judgement"):
        submit_reread(engine, tenant, job_id, *read_reread(b""), FLEET)
