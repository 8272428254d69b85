"""`POST /v1/jobs/{id}/reread`: what is answered, and what is refused as a submit refuses it."""

import json
from pathlib import Path
from typing import Any

from flask import Flask
from sqlalchemy import Engine

from services.foundation.settings import Settings
from tests.integration.api.conftest import REASONING, Caller, check_problem, kept, new_caller, started

NOBODY = "job_01a229ca547c751c84eb80037888a4d4"


def ended(caller: Caller, **changes: Any) -> str:
    """Where a job is that has ended."""
    path = caller.submit(**changes).headers["Location"]
    assert caller.post(f"{path}/cancel").json == caller.get(path).json
    return path


def test_a_job_is_read_again(caller: Caller, engine: Engine) -> None:
    source = ended(caller, items=40, judges=[REASONING])
    before = kept(engine)
    metadata = '{ "n":1,  "s":"\\u00e9" }'
    body = f'{{"name": "again", "options": {{"on_conflict": "abstain"}}, "metadata": {metadata}}}'
    response = caller.post(f"{source}/reread", data=body, content_type="application/json")
    assert response.status_code == 202
    job = response.json
    assert job is not None
    assert response.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert (job["reread_of"], job["name"], job["status"]) == (source.rpartition("/")[2], "again", "queued")
    assert metadata in response.text
    assert job["options"][REASONING]["on_conflict"] == "abstain"
    assert job["counts"]["queued"] == job["counts"]["total"] == 40
    assert caller.get(f"/v1/jobs/{job['id']}").json == job
    assert kept(engine) == {"job": 2, "item": 80, "chunk": before["chunk"] * 2}
    cancelled = caller.post(f"/v1/jobs/{job['id']}/cancel").json
    assert cancelled is not None
    assert (cancelled["status"], cancelled["counts"]["cancelled"]) == ("cancelled", 40)


def test_a_panel_is_read_again(caller: Caller) -> None:
    weights = {REASONING: 2.0}
    options = {"mode": "reason", "panel": {"weights": weights}}
    source = ended(caller, judges=["tiny", REASONING], options=options)
    job = caller.post(f"{source}/reread", json={"options": {"panel": {"tie_margin": 0.1}}}).json
    assert job is not None
    assert job["panel"] == {"decide": "majority", "weights": {"tiny": 1.0, **weights}, "tie_margin": 0.1}


def test_nothing_need_be_sent(caller: Caller) -> None:
    source = ended(caller)
    for options in (
        {},
        {"data": b""},
        {"json": {}},
        {"data": b"", "content_type": "application/x-www-form-urlencoded"},
    ):
        job = caller.post(f"{source}/reread", **options).json
        assert job is not None
        assert job["reread_of"] == source.rpartition("/")[2]


def test_jobs_that_cannot_be_read_again(app: Flask, caller: Caller, engine: Engine) -> None:
    running, source = caller.submit().headers["Location"], ended(caller)
    before = kept(engine)
    check_problem(caller.post(f"{running}/reread"), 409, "conflict")
    check_problem(new_caller(app, engine, "umbrella").post(f"{source}/reread"), 404, "not_found")
    for unknown in (NOBODY, "job_zz"):
        check_problem(caller.post(f"/v1/jobs/{unknown}/reread"), 404, "not_found")
    check_problem(app.test_client().post(f"{source}/reread"), 401, "unauthorized")
    assert kept(engine) == before


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"options": {"samples": 2}}, "unknown_field", "/options/samples"),
    ({"judges": ["tiny"]}, "unknown_field", "/judges"),
    ({"items": []}, "unknown_field", "/items"),
    ({"options": {"decide": "coin"}}, "invalid_value", "/options/decide"),
    ({"options": {"panel": {"tie_margin": 0.1}}}, "invalid_value", "/options/panel"),
    ({"options": {"on_conflict": "abstain"}}, "invalid_value", "/options/on_conflict"),
    ({"callback": {"url": "file:///etc/passwd"}}, "invalid_value", "/callback/url"),
    ({"metadata": {"text": "x" * (17 << 10)}}, "too_large", "/metadata"),
]


def test_requests_that_cannot_be_accepted(caller: Caller, engine: Engine) -> None:
    source = ended(caller)
    before = kept(engine)
    for body, code, pointer in WRONG:
        problem = check_problem(caller.post(f"{source}/reread", json=body), 422, "invalid_request")
        assert [(fault["code"], fault["pointer"]) for fault in problem["errors"]] == [(code, pointer)]
    check_problem(caller.post(f"{source}/reread?dry=true"), 422, "invalid_request")
    assert kept(engine) == before


def test_bodies_that_cannot_be_read(caller: Caller, engine: Engine) -> None:
    source = ended(caller)
    before = kept(engine)
    for body in (b" ", b"{", b"[1, 2", b'{"name": "a", "name": "b"}', b"\xff"):
        response = caller.post(f"{source}/reread", data=body, content_type="application/json")
        check_problem(response, 400, "invalid_json")
    check_problem(caller.post(f"{source}/reread", json={"name": "x" * (5 << 20)}), 413, "payload_too_large")
    for content_type in ("text/plain", "application/x-ndjson", "multipart/form-data; boundary=cut", ""):
        response = caller.post(f"{source}/reread", data=json.dumps({}), content_type=content_type)
        check_problem(response, 415, "unsupported_media_type")
    packed = caller.post(f"{source}/reread", json={}, headers={"Content-Encoding": "gzip"})
    check_problem(packed, 415, "unsupported_media_type")
    assert kept(engine) == before


def test_a_judge_that_the_fleet_has_no_more(caller: Caller, engine: Engine, settings: Settings, tmp_path: Path) -> None:
    source = ended(caller)
    smaller = tmp_path / "smaller.toml"
    smaller.write_text('[models.other]\nprotocol = "sdrm"\nweights = "nowhere"\n', encoding="utf-8")
    for app in started(settings.model_copy(update={"fleet": smaller})):
        response = new_caller(app, engine, "acme").post(f"{source}/reread")
        problem = check_problem(response, 422, "invalid_request")
        assert [fault["code"] for fault in problem["errors"]] == ["unknown_model"]
        assert "tiny" in problem["errors"][0]["message"]
