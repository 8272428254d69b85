"""Uploads: every line's fault is told, and whatever is sent, nothing is kept of what is refused."""

import base64
import gzip
import json
from io import BytesIO
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from services.foundation.settings import Settings
from tests.factories import comparisons
from tests.integration.api.conftest import JOB, NOTHING, Caller, check_problem, form, kept, new_caller, started


def ndjson(items: list[Any]) -> bytes:
    return b"\n".join(json.dumps(item).encode() for item in items)


JOB_PART = ("job", json.dumps(JOB).encode(), "")
ITEMS_PART = ("items", ndjson(comparisons(3)), "")


def test_every_kind_of_fault_with_its_line(caller: Caller, engine: Engine) -> None:
    good = [json.dumps(item).encode() for item in comparisons(4)]
    lines = [
        good[0],
        b"",
        b"\xff",
        b"{",
        good[1],
        b'{"metadata": NaN}',
        b"[]",
        good[0],
        b'{"id": 1}',
        b"{}",
        json.dumps({**comparisons(1)[0], "label": "C"}).encode(),
        b"x" * ((1 << 20) + 1),
        good[2],
        good[1],
    ]
    problem = check_problem(caller.upload(b"\n".join(lines)), 422, "invalid_request")
    assert [(fault["line"], fault["code"], fault["pointer"]) for fault in problem["errors"]] == [
        (3, "invalid_utf8", ""),
        (4, "invalid_json", ""),
        (6, "non_finite_number", "/metadata"),
        (7, "not_an_object", ""),
        (8, "duplicate_custom_id", "/custom_id"),
        (9, "unknown_field", "/id"),
        (10, "missing_field", "/custom_id"),
        (11, "invalid_value", "/label"),
        (12, "too_large", ""),
        (14, "duplicate_custom_id", "/custom_id"),
    ]
    assert problem["error_count"] == 10
    assert problem["detail"] == "10 of 13 items cannot be accepted"
    assert kept(engine) == NOTHING


def test_the_first_hundred_faults_are_listed_and_all_are_counted(caller: Caller, engine: Engine) -> None:
    duplicates = [*comparisons(60), *comparisons(60)]
    problem = check_problem(caller.upload(ndjson(duplicates) + b"\n{" * 90), 422, "invalid_request")
    assert problem["error_count"] == 150
    assert [fault["line"] for fault in problem["errors"]] == list(range(61, 161))
    assert [fault["code"] for fault in problem["errors"]] == ["duplicate_custom_id"] * 60 + ["invalid_json"] * 40
    assert kept(engine) == NOTHING


def test_shared_cases(caller: Caller, engine: Engine, shared: Path) -> None:
    """The same answers through HTTP and the database."""
    jobs = 0
    for text in (shared / "cases" / "intake.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(text)
        expected = case["expect"]
        body = base64.b64decode(case["body_b64"])
        response = caller.upload(body)
        if expected["accepted_items"]:
            assert response.status_code == 202, case["id"]
            assert response.json is not None
            assert response.json["counts"]["total"] == expected["accepted_items"], case["id"]
            jobs += 1
        else:
            problem = check_problem(response, 422, "invalid_request")
            said = [{"line": fault["line"], "code": fault["code"]} for fault in problem["errors"]]
            assert said == expected["errors"], case["id"]
    assert kept(engine)["job"] == jobs > 0


def test_an_upload_without_items(caller: Caller, engine: Engine) -> None:
    for body in (b"", b"\n \t\r\n\n", b"\xef\xbb\xbf"):
        (fault,) = check_problem(caller.upload(body), 422, "no_items")["errors"]
        assert (fault["code"], fault["pointer"]) == ("no_items", "/items")
    assert kept(engine) == NOTHING


def test_parts_in_either_order_as_fields_or_as_files(caller: Caller) -> None:
    for parts in ((JOB_PART, ITEMS_PART), (ITEMS_PART, JOB_PART)):
        assert caller.post("/v1/jobs", **form(*parts)).status_code == 202
    files = {"job": (BytesIO(JOB_PART[1]), "job.json"), "items": (BytesIO(ITEMS_PART[1]), "items.ndjson")}
    assert caller.post("/v1/jobs", data=files).status_code == 202


def test_a_part_may_be_compressed(caller: Caller, engine: Engine) -> None:
    lines = ndjson(comparisons(500)).splitlines(keepends=True)
    in_two_members = gzip.compress(b"".join(lines[:250])) + gzip.compress(b"".join(lines[250:]))
    packed = ("items", in_two_members, "Content-Encoding: gzip\r\n")
    response = caller.post("/v1/jobs", **form(JOB_PART, packed))
    assert response.status_code == 202, response.text
    assert kept(engine)["item"] == 500


REFUSED_FORMS: list[tuple[dict[str, Any], int, str, list[tuple[str, str]]]] = [
    (form(ITEMS_PART), 422, "invalid_request", [("/job", "missing_field")]),
    (form(JOB_PART), 422, "invalid_request", [("/items", "missing_field")]),
    (form(JOB_PART, JOB_PART, ITEMS_PART), 422, "invalid_request", [("/job", "invalid_value")]),
    (form(JOB_PART, ITEMS_PART, ("more", b"", "")), 422, "invalid_request", [("", "unknown_field")]),
    (form(("job", b"{", ""), ITEMS_PART), 400, "invalid_json", [("", "invalid_json")]),
    (form(("job", b"\xff", ""), ITEMS_PART), 400, "invalid_json", [("", "invalid_utf8")]),
    (form(("job", b'{"items": []}', ""), ITEMS_PART), 422, "invalid_request", [("/items", "unknown_field")]),
    (form(("job", b" " * (2 << 20), ""), ITEMS_PART), 413, "payload_too_large", []),
    (form(JOB_PART, ("items", b"", "Content-Encoding: zstd\r\n")), 415, "unsupported_media_type", []),
    (form(JOB_PART, ("items", b"no gzip", "Content-Encoding: gzip\r\n")), 400, "invalid_multipart", []),
    (form(JOB_PART, ("items", b"", "Content-Encoding: gzip\r\n")), 400, "invalid_multipart", []),
    (
        form(JOB_PART, ("items", gzip.compress(ITEMS_PART[1])[:-9], "Content-Encoding: gzip\r\n")),
        400,
        "invalid_multipart",
        [],
    ),
    (
        form(JOB_PART, ("items", gzip.compress(b"\n" * (5 << 20)), "Content-Encoding: gzip\r\n")),
        413,
        "payload_too_large",
        [],
    ),
    (form(JOB_PART, ("items", b"\n" * (4 << 20), "")), 413, "payload_too_large", []),
    ({**form(JOB_PART, ITEMS_PART), "content_type": "multipart/form-data"}, 400, "invalid_multipart", []),
    (
        {**form(JOB_PART, ITEMS_PART), "content_type": "multipart/form-data; boundary=other"},
        400,
        "invalid_multipart",
        [],
    ),
    ({**form(), "data": form(JOB_PART, ITEMS_PART)["data"][:-10]}, 400, "invalid_multipart", []),
    ({**form(), "data": b"--cut\r\nX: y\r\n\r\nz\r\n--cut--\r\n"}, 400, "invalid_multipart", []),
    (
        {**form(), "data": b"--cut\r\nContent-Disposition: form-data\r\n\r\nz\r\n--cut--\r\n"},
        422,
        "invalid_request",
        [("", "unknown_field")],
    ),
    ({**form(), "data": b"no boundary in sight" * 100_000}, 413, "payload_too_large", []),
]


def test_forms_that_are_refused(caller: Caller, engine: Engine) -> None:
    for body, status, code, faults in REFUSED_FORMS:
        problem = check_problem(caller.post("/v1/jobs", **body), status, code)
        assert [(fault["pointer"], fault["code"]) for fault in problem["errors"]] == faults
    assert kept(engine) == NOTHING


def test_a_spool_that_cannot_be_written(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    for app in started(settings.model_copy(update={"spool_dir": tmp_path / "missing"})):
        caller = new_caller(app, engine, "acme")
        problem = check_problem(caller.upload(ITEMS_PART[1]), 503, "spool_unavailable")
        assert problem["retryable"] is True
    assert kept(engine) == NOTHING
