"""Refusals: the right status and problem for everything that can be wrong with a request, and nothing kept."""

import json
import traceback
from typing import Any

from flask import Flask
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from sqlalchemy import Engine, text
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from api.session import EXTENSION
from services.foundation.database import transaction
from tests.factories import comparisons
from tests.integration.api.conftest import JOB, NOTHING, Caller, check_problem, kept

UNKNOWN = "job_01a229ca547c751c84eb80037888a4d4"
OF_A_JOB = ("", "/results", "/results?custom_id=q0", "/traces", "/report")


WRONG_JOBS: list[tuple[dict[str, Any], str, str]] = [
    ({"judges": ["nobody"]}, "unknown_model", "/judges/0"),
    ({"options": {"ordres": "both"}}, "unknown_field", "/options/ordres"),
    ({"options": {"samples": 99}}, "invalid_value", "/options/samples"),
    ({"kind": "ranking"}, "invalid_value", "/kind"),
    ({"colour": "red"}, "unknown_field", "/colour"),
    ({"items": {}}, "invalid_value", "/items"),
    ({"items": [1]}, "not_an_object", "/items/0"),
    ({"callback": {"url": "file:///etc/passwd"}}, "invalid_value", "/callback/url"),
]


def test_jobs_that_cannot_be_accepted(caller: Caller, engine: Engine) -> None:
    for changes, code, pointer in WRONG_JOBS:
        body = {**JOB, "items": comparisons(3), **changes}
        problem = check_problem(caller.post("/v1/jobs", json=body), 422, "invalid_request")
        assert [(fault["code"], fault["pointer"]) for fault in problem["errors"]] == [(code, pointer)]
    assert kept(engine) == NOTHING


def test_a_job_without_items(caller: Caller, engine: Engine) -> None:
    (fault,) = check_problem(caller.submit([]), 422, "no_items")["errors"]
    assert (fault["code"], fault["pointer"]) == ("no_items", "/items")
    problem = check_problem(caller.post("/v1/jobs", json=JOB), 422, "invalid_request")
    assert problem["errors"][0]["code"] == "missing_field"
    assert kept(engine) == NOTHING


def test_bodies_that_are_not_json(caller: Caller, engine: Engine) -> None:
    for body in (b"", b"{", b"[1, 2", b'{"kind": "judgement", "kind": "judgement"}', b"\xff"):
        check_problem(caller.submit_text(body), 400, "invalid_json")
    assert kept(engine) == NOTHING


def test_bodies_of_another_type(caller: Caller, engine: Engine) -> None:
    body = json.dumps({**JOB, "items": comparisons(1)})
    for content_type in ("text/plain", "application/x-ndjson", "application/x-www-form-urlencoded", ""):
        check_problem(caller.post("/v1/jobs", data=body, content_type=content_type), 415, "unsupported_media_type")
    packed = caller.post("/v1/jobs", data=body, content_type="application/json", headers={"Content-Encoding": "gzip"})
    check_problem(packed, 415, "unsupported_media_type")
    assert kept(engine) == NOTHING


def test_a_body_that_is_too_large(caller: Caller, engine: Engine) -> None:
    check_problem(caller.submit(comparisons(1), name="x" * (5 << 20)), 413, "payload_too_large")
    check_problem(caller.upload(b"\n" * (5 << 20)), 413, "payload_too_large")
    assert kept(engine) == NOTHING


def test_without_a_known_key(app: Flask) -> None:
    headers = ("", "ask_unknown", "Bearer", "Bearer ", "Bearer ask_unknown", "Basic YTpi", "Bearer \xff\xfe")
    for path in ("/v1/jobs", "/v1/models", *(f"/v1/jobs/{UNKNOWN}{tail}" for tail in OF_A_JOB)):
        for header in headers:
            response = app.test_client().get(path, headers={"Authorization": header})
            check_problem(response, 401, "unauthorized")
            assert response.headers["WWW-Authenticate"].startswith("Bearer")


def test_with_a_revoked_key(caller: Caller, engine: Engine) -> None:
    assert caller.get("/v1/jobs").status_code == 200
    with transaction(engine) as connection:
        connection.execute(text("UPDATE api_key SET revoked_at = now()"))
    check_problem(caller.get("/v1/jobs"), 401, "unauthorized")
    check_problem(caller.submit(), 401, "unauthorized")
    assert kept(engine) == NOTHING


def test_jobs_that_are_not_there(caller: Caller) -> None:
    for job_id in (UNKNOWN, UNKNOWN.upper(), "job_", "job_zz", "x", UNKNOWN[:-1], "%00", "..", "é"):
        for tail in OF_A_JOB:
            check_problem(caller.get(f"/v1/jobs/{job_id}{tail}"), 404, "not_found")
        check_problem(caller.post(f"/v1/jobs/{job_id}/cancel"), 404, "not_found")


def test_paths_and_methods_that_are_not_there(caller: Caller) -> None:
    for path in ("/", "/v1", "/v2/jobs", "/v1/jobs/", "//v1/jobs", "/v1/jobs/a/b/c"):
        check_problem(caller.get(path), 404, "not_found")
    response = caller.client.delete("/v1/jobs", headers=caller.headers)
    check_problem(response, 405, "method_not_allowed")
    assert {"GET", "POST"} <= set(response.headers["Allow"].split(", "))


WRONG_QUERIES = [
    ("/v1/jobs?limit=0", "invalid_value", "/limit"),
    ("/v1/jobs?limit=201", "invalid_value", "/limit"),
    ("/v1/jobs?limit=all", "invalid_value", "/limit"),
    ("/v1/jobs?status=done", "invalid_value", "/status"),
    ("/v1/jobs?after=job_zz", "invalid_value", "/after"),
    ("/v1/jobs?page=2", "unknown_field", "/page"),
    ("/v1/models?x=", "unknown_field", "/x"),
    ("{job}?wait_for=1", "unknown_field", "/wait_for"),
    ("{job}/results?limit=1001", "invalid_value", "/limit"),
    ("{job}/results?status=queued", "invalid_value", "/status"),
    ("{job}/results?after=1", "invalid_value", "/after"),
    ("{job}/results?after=1.x", "invalid_value", "/after"),
    ("{job}/results?after=99999999999999999999.1", "invalid_value", "/after"),
    ("{job}/results?custom_id=a&limit=1", "invalid_value", "/limit"),
    ("{job}/traces?limit=1", "unknown_field", "/limit"),
    ("{job}/report?format=md", "unknown_field", "/format"),
]


def test_query_parameters_that_are_wrong(caller: Caller) -> None:
    job = caller.submit(1).headers["Location"]
    for path, code, pointer in WRONG_QUERIES:
        problem = check_problem(caller.get(path.format(job=job)), 422, "invalid_request")
        assert [(fault["code"], fault["pointer"]) for fault in problem["errors"]] == [(code, pointer)]


def test_a_query_parameter_that_a_submit_does_not_know(caller: Caller, engine: Engine) -> None:
    response = caller.post("/v1/jobs?dry=true", json={**JOB, "items": comparisons(1)})
    check_problem(response, 422, "invalid_request")
    assert kept(engine) == NOTHING


def test_a_stream_has_no_limit(caller: Caller) -> None:
    job = caller.submit(1).headers["Location"]
    response = caller.get(f"{job}/results?limit=5", Accept="application/x-ndjson")
    check_problem(response, 422, "invalid_request")


def test_a_request_keeps_the_id_that_it_came_with(caller: Caller) -> None:
    assert caller.get("/nowhere", X_Request_Id="trace-7.a").headers["X-Request-Id"] == "trace-7.a"
    for unusable in ("two words", "x" * 65, "é", "a\tb"):
        assert caller.get("/nowhere", X_Request_Id=unusable).headers["X-Request-Id"] != unusable


def test_what_goes_wrong_inside_is_logged_and_not_told(caller: Caller, engine: Engine) -> None:
    with transaction(engine) as connection:
        connection.execute(text("ALTER TABLE job RENAME COLUMN settings TO gone"))
    with capture_logs(processors=[merge_contextvars]) as logs:
        problem = check_problem(caller.submit(name="a caller's own text"), 500, "internal_error")
    assert problem["detail"] == "something went wrong inside"
    (line,) = logs
    assert (line["event"], line["route"], line["request_id"]) == ("request_failed", "/v1/jobs", problem["request_id"])
    assert "own text" not in "".join(traceback.format_exception(line["exc_info"]))
    assert kept(engine) == NOTHING


def test_a_database_that_only_reads(caller: Caller, engine: Engine) -> None:
    name = engine.url.database
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
    caller.client.application.extensions[EXTENSION].engine.dispose()
    with capture_logs() as logs:
        problem = check_problem(caller.submit(), 503, "database_unavailable")
    assert problem["retryable"] is True
    assert [line["error"] for line in logs] == ["ReadOnlySqlTransaction"]
    assert caller.get("/v1/jobs").status_code == 200


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()))
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["kind", "judges", "name", "metadata", "options", "callback", "priority", "deadline", "items"])
OF_ITEMS = st.sampled_from(["custom_id", "context", "candidates", "label", "cluster", "metadata"])
MANY = examples(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


def check_answer(response: Any) -> None:
    assert response.status_code in {202, 400, 413, 415, 422}, response.text
    if response.status_code != 202:
        check_problem(response, response.status_code, response.json["code"])


@MANY
@given(st.dictionaries(FIELDS, ANY, max_size=4), st.dictionaries(OF_ITEMS, ANY, max_size=3))
def test_no_json_body_breaks_anything(caller: Caller, changes: dict[str, Any], item: dict[str, Any]) -> None:
    body = {**JOB, "items": [{**comparisons(1)[0], **item}], **changes}
    check_answer(caller.submit_text(json.dumps(body)))


@MANY
@given(
    st.binary(max_size=300),
    st.sampled_from(["application/json", "multipart/form-data; boundary=cut", "multipart/form-data; boundary=", "x/y"]),
)
def test_no_bytes_break_anything(caller: Caller, body: bytes, content_type: str) -> None:
    check_answer(caller.post("/v1/jobs", data=body, content_type=content_type))


@MANY
@given(st.lists(st.binary(max_size=80) | st.sampled_from([b"--cut", b"--cut--", b"\r\n", b"\r\n\r\n"]), max_size=12))
def test_no_form_breaks_anything(caller: Caller, pieces: list[bytes]) -> None:
    opening = b'--cut\r\nContent-Disposition: form-data; name="items"\r\n\r\n'
    body = opening + b"".join(pieces)
    check_answer(caller.post("/v1/jobs", data=body, content_type="multipart/form-data; boundary=cut"))


@MANY
@given(st.binary(max_size=200))
def test_no_upload_breaks_anything(caller: Caller, items: bytes) -> None:
    check_answer(caller.upload(items))
