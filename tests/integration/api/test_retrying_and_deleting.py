"""`POST /v1/jobs/{id}/retry` and `DELETE /v1/jobs/{id}`: what is answered, what is refused, and what is gone then."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Engine

from services.foundation.broker import make_broker, waiting
from services.foundation.settings import Settings
from services.jobs.prune import drop_old_traces
from services.jobs.record import Recorder
from tests.factories import MODEL
from tests.hearings import a_worker, heard, taken
from tests.integration.api.conftest import Caller, check_problem, id_of, kept, new_caller, started
from tests.integration.api.test_documents import check_shape
from tests.integration.jobs.test_retention import aged
from tests.integration.jobs.test_retry import failing

NOBODY = "job_01a229ca547c751c84eb80037888a4d4"
URL = "http://assizes.test"


def ended(caller: Caller, engine: Engine, items: int = 40, **changes: Any) -> str:
    """Where a job is of whose first 32 items every third failed, and whose others were cancelled."""
    path = caller.submit(items, **changes).headers["Location"]
    held = taken(engine, a_worker(engine))
    Recorder(engine, held, URL).end(failing(heard(held, range(held.end_seq)), *range(0, held.end_seq, 3)))
    caller.post(f"{path}/cancel")
    return path


def test_a_job_is_tried_again(app: Flask, caller: Caller, engine: Engine, redis_url: str) -> None:
    source = ended(caller, engine, name="nightly", metadata={"run": "42"})
    with make_broker(redis_url, patience=5) as broker:
        bells = waiting(broker, MODEL)
        response = caller.post(f"{source}/retry")
        assert waiting(broker, MODEL) == bells + 1
    assert response.status_code == 202
    job = response.json
    assert job is not None
    assert response.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert (job["retry_of"], job["reread_of"], job["status"]) == (source.rpartition("/")[2], None, "queued")
    assert (job["name"], job["metadata"]) == ("nightly", {"run": "42"})
    assert job["counts"]["queued"] == job["counts"]["total"] == 11 + 8
    assert caller.get(f"/v1/jobs/{job['id']}").json == job
    check_shape(app.test_client().get("/openapi.json").json, "Job", job)
    old = caller.get(source).json
    assert old is not None
    assert old["retry_of"] is None


def test_only_what_is_named(caller: Caller, engine: Engine) -> None:
    source = ended(caller, engine)
    for body, total in (({"only": ["failed"]}, 11), ({"only": ["cancelled", "expired"]}, 8), ({"only": None}, 19)):
        job = caller.post(f"{source}/retry", json=body).json
        assert job is not None
        assert job["counts"]["total"] == total
    problem = check_problem(caller.post(f"{source}/retry", json={"only": ["expired"]}), 409, "nothing_to_retry")
    assert "expired" in problem["detail"]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"only": []}, "invalid_value", "/only"),
    ({"only": ["succeeded"]}, "invalid_value", "/only/0"),
    ({"only": "failed"}, "invalid_value", "/only"),
    ({"items": []}, "unknown_field", "/items"),
    ({"options": {}}, "unknown_field", "/options"),
]


def test_requests_that_cannot_be_accepted(caller: Caller, engine: Engine) -> None:
    source = ended(caller, engine)
    before = kept(engine)
    for body, code, pointer in WRONG:
        problem = check_problem(caller.post(f"{source}/retry", json=body), 422, "invalid_request")
        assert [(fault["code"], fault["pointer"]) for fault in problem["errors"]] == [(code, pointer)]
    check_problem(caller.post(f"{source}/retry?dry=true"), 422, "invalid_request")
    response = caller.post(f"{source}/retry", data=b"{", content_type="application/json")
    check_problem(response, 400, "invalid_json")
    check_problem(caller.post(f"{source}/retry", data=b"{}", content_type="text/plain"), 415, "unsupported_media_type")
    assert kept(engine) == before


def test_jobs_that_cannot_be_tried_again_or_deleted(app: Flask, caller: Caller, engine: Engine) -> None:
    source, still_open = ended(caller, engine), caller.submit().headers["Location"]
    stranger = new_caller(app, engine, "umbrella")
    before = kept(engine)
    for call in (lambda who, path: who.post(f"{path}/retry"), lambda who, path: who.delete(path)):
        check_problem(call(caller, still_open), 409, "conflict")
        check_problem(call(stranger, source), 404, "not_found")
        for unknown in (NOBODY, "job_zz"):
            check_problem(call(caller, f"/v1/jobs/{unknown}"), 404, "not_found")
    for response in (app.test_client().post(f"{source}/retry"), app.test_client().delete(source)):
        check_problem(response, 401, "unauthorized")
    reread = caller.post(f"{source}/reread").headers["Location"]
    caller.post(f"{reread}/cancel")
    check_problem(caller.post(f"{reread}/retry"), 409, "conflict")
    assert kept(engine)["job"] == before["job"] + 1


def test_a_model_that_the_fleet_has_no_more(caller: Caller, engine: Engine, settings: Settings, tmp_path: Path) -> None:
    source = ended(caller, engine)
    smaller = tmp_path / "smaller.toml"
    smaller.write_text('[models.other]\nprotocol = "sdrm"\nweights = "nowhere"\n', encoding="utf-8")
    for app in started(settings.model_copy(update={"fleet": smaller})):
        response = new_caller(app, engine, "acme").post(f"{source}/retry")
        problem = check_problem(response, 422, "invalid_request")
        assert [(fault["code"], fault["pointer"]) for fault in problem["errors"]] == [("unknown_model", "")]


def test_a_deleted_job_is_nowhere(app: Flask, caller: Caller, engine: Engine) -> None:
    source, other = ended(caller, engine), ended(caller, engine)
    again = caller.post(f"{source}/retry").json
    assert again is not None
    etag = caller.get(f"/v1/jobs/{again['id']}").headers["ETag"]
    response = caller.delete(source)
    assert (response.status_code, response.data) == (204, b"")
    rules = [rule for rule in app.url_map.iter_rules() if "job_id" in rule.arguments]
    assert len(rules) >= 8
    for rule in rules:
        path = rule.rule.replace("<job_id>", source.rpartition("/")[2])
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            answer = caller.client.open(path, method=method, headers=caller.headers)
            check_problem(answer, 404, "not_found")
    check_problem(caller.get(f"{source}/results?custom_id=q0"), 404, "not_found")
    check_problem(caller.get(f"{source}/results", Accept="application/x-ndjson"), 404, "not_found")
    listed = caller.get("/v1/jobs").json
    assert listed is not None
    assert [job["id"] for job in listed["data"]] == [again["id"], other.rpartition("/")[2]]
    then = caller.get(f"/v1/jobs/{again['id']}", If_None_Match=etag)
    assert (then.status_code, then.json and then.json["retry_of"]) == (200, None)


def test_traces_that_are_not_kept_any_more(app: Flask, caller: Caller, engine: Engine) -> None:
    source = ended(caller, engine)
    response = caller.get(source)
    aged(engine, id_of(response), days_ago=8)
    assert len(caller.get(f"{source}/traces").text.splitlines()) == 32
    assert len(drop_old_traces(engine, timedelta(days=7))) == 1
    problem = check_problem(caller.get(f"{source}/traces"), 410, "traces_pruned")
    assert problem["retryable"] is False
    check_problem(caller.post(f"{source}/reread"), 410, "traces_pruned")
    one = caller.get(f"{source}/results?custom_id=q1").json
    assert one is not None
    assert (one["traces"], one["verdict"]["winner"]) == (None, "A")
    check_shape(app.test_client().get("/openapi.json").json, "ResultDetail", one)
    assert caller.get(f"{source}/report").status_code == 200


@pytest.mark.parametrize(
    "deadline", ["1796083200", "2026-12-01", "2026-12-01T00:00:00", "soon", "", 1796083200, "9999-12-31T23:59:59-14:00"]
)
def test_deadlines_that_are_none(caller: Caller, deadline: object) -> None:
    problem = check_problem(caller.submit(deadline=deadline), 422, "invalid_request")
    assert [(fault["pointer"], fault["code"]) for fault in problem["errors"]] == [("/deadline", "invalid_value")]
