"""Jobs that reappraise or score, over HTTP: their answers are as described, and no other tenant's."""

from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Engine

from services.vocabulary import Winner
from tests.integration.api.conftest import Caller, new_caller
from tests.integration.api.test_documents import check_shape
from tests.stages import ACCEPTED, TOO_LONG, compare, score, settle, write

FLEET = """
[models.writer]
protocol = "reappraisal"
weights = "w"
[models.a]
protocol = "reward"
weights = "w"
[models.b]
protocol = "reward"
weights = "w"
[models.judge]
protocol = "sdrm"
weights = "w"
[committees.within]
members = ["a", "b"]
normalise = "group"
[committees.anchored]
members = ["a", "b"]
weights = { a = 2.0 }
"""
REAPPRAISAL: dict[str, Any] = {
    "kind": "reappraisal",
    "model": "writer",
    "options": {"candidates": 2, "committee": "within", "compare": "judge"},
    "items": [
        {"custom_id": "a\u0000b", "scenario": "My \ud800 friend <|im_end|> left.", "baseline": "So.", "cluster": "v"},
        {"custom_id": "c", "scenario": "He left.", "baseline": [{"content": "Ah.", "system": "x"}, "Oh."]},
    ],
}
SCORING: dict[str, Any] = {
    "kind": "scoring",
    "committee": "anchored",
    "items": [{"custom_id": "r", "context": [{"role": "user", "content": "Why?"}], "response": "So.", "system": "y"}],
}


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    """A fleet with committees that nobody serves."""
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET, encoding="utf-8")
    return file


def test_answers_are_as_described(app: Flask, caller: Caller, engine: Engine) -> None:
    document = app.test_client().get("/openapi.json").json
    for body in (REAPPRAISAL, SCORING):
        check_shape(document, "InlineJobRequest", body)
        response = caller.post("/v1/jobs", json=body)
        assert response.status_code == 202, response.text
        job = response.headers["Location"]
        check_shape(document, "Job", response.json)
        if body is REAPPRAISAL:
            assert (response.json["model"], response.json["committee"], response.json["judges"]) == (
                "writer",
                "within",
                ["judge"],
            )
            write(engine, ACCEPTED, TOO_LONG, ACCEPTED)
            score(engine, "a", [1.0, 2.0])
            score(engine, "b", [1.0, 2.0])
            settle(engine)
            compare(engine, Winner.A)
        else:
            score(engine, "a", [1.0])
            score(engine, "b", [None])
        settle(engine)
        page = caller.get(f"{job}/results").json
        check_shape(document, "ResultPage", page)
        assert page is not None
        for line, item in zip(page["data"], body["items"], strict=True):
            check_shape(document, "Result", line)
            assert line["custom_id"] == item["custom_id"]
            detail = caller.client.get(
                f"{job}/results", query_string={"custom_id": item["custom_id"]}, headers=caller.headers
            ).json
            check_shape(document, "ResultDetail", detail)
            assert detail["item"] == item
        check_shape(document, "Report", caller.get(f"{job}/report").json)
        assert caller.get(f"{job}/report", Accept="text/markdown").status_code == 200
    check_shape(document, "JobPage", caller.get("/v1/jobs").json)
    models = caller.get("/v1/models").json
    check_shape(document, "ModelList", models)
    assert models is not None
    assert {model["name"]: model["task"] for model in models["data"]} == {
        "a": "score",
        "b": "score",
        "judge": "judge",
        "writer": "write",
    }
    assert [committee["weights"] for committee in models["committees"]] == [{"a": 2.0, "b": 1.0}, {"a": 1.0, "b": 1.0}]


def test_another_tenant_sees_nothing(app: Flask, caller: Caller, engine: Engine) -> None:
    stranger = new_caller(app, engine, "rival")
    for body in (REAPPRAISAL, SCORING):
        job = caller.post("/v1/jobs", json=body).headers["Location"]
        for path in (job, f"{job}/results?custom_id=c", f"{job}/report"):
            assert stranger.get(path).status_code == 404
        assert stranger.post(f"{job}/cancel").status_code == 404
