"""Jobs that reappraise or score, over HTTP: their answers are as described, and no other tenant's."""

from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Engine

from services.vocabulary import Winner
from tests.integration.api.conftest import Caller, id_of, new_caller
from tests.integration.api.test_documents import check_shape
from tests.stages import ACCEPTED, TOO_LONG, an_epoch, compare, score, settle, write

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


@pytest.mark.parametrize("raw", [2e19, 3e38, 1e59, -1e100])
def test_a_score_of_many_digits_is_a_number_like_any_other(caller: Caller, engine: Engine, raw: float) -> None:
    response = caller.post("/v1/jobs", json=SCORING)
    job = response.headers["Location"]
    for model, value in (("a", raw), ("b", raw / 2)):
        score(engine, model, [value], an_epoch(engine, model, id_of(response), [-1.0, 1.0] * 16))  # z is the raw score
    settle(engine)
    (line,) = caller.get(f"{job}/results").json["data"]
    mean, std = raw * 5 / 6, abs(raw) / 18**0.5  # with weights 2 and 1
    said = (line["mean"], line["std"], line["score"], line["scores"]["a"]["raw"], line["scores"]["b"]["z"])
    assert said == pytest.approx((mean, std, mean - std / 2, raw, raw / 2))
    assert all(isinstance(number, float) for number in (*said, line["models"]["a"]["raw"]))
    report = caller.get(f"{job}/report").json
    assert report["committee"]["score"] == pytest.approx(mean - std / 2)
    assert [member["mean"] for member in report["committee"]["members"]] == pytest.approx([raw, raw / 2])
    assert report["systems"][0]["mean"] == pytest.approx(mean - std / 2)
    assert caller.get(f"{job}/report", Accept="text/markdown").status_code == 200


def test_chosen_texts_with_scores_of_many_digits_are_reported(caller: Caller, engine: Engine) -> None:
    options = {"candidates": 2, "committee": "anchored"}
    items = [{"custom_id": "c", "scenario": "He left."}]
    response = caller.post("/v1/jobs", json={**REAPPRAISAL, "options": options, "items": items})
    job = response.headers["Location"]
    write(engine, ACCEPTED, ACCEPTED)
    for model in ("a", "b"):
        score(engine, model, [1.0, 3e38], an_epoch(engine, model, id_of(response), [-1.0, 1.0] * 16))
    settle(engine)
    report = caller.get(f"{job}/report").json
    assert report["committee"]["chosen_score"] == pytest.approx(3e38)
    assert report["committee"]["score"] == pytest.approx(1.5e38)


def test_a_score_beyond_all_numbers_on_its_scale_fails_its_item_alone(caller: Caller, engine: Engine) -> None:
    items = [{**SCORING["items"][0], "custom_id": name} for name in ("far", "farther")]
    response = caller.post("/v1/jobs", json={**SCORING, "items": items})
    job = response.headers["Location"]
    for model, spread in (("a", 1e-140), ("b", 1.0)):
        epoch_id = an_epoch(engine, model, id_of(response), [-spread, spread] * 16)
        score(engine, model, [-1e100], epoch_id)
    settle(engine)
    assert caller.get(job).json["status"] == "failed"
    errors = [line["error"]["code"] for line in caller.get(f"{job}/results").json["data"]]
    assert errors == ["runtime_error"] * 2


def test_another_tenant_sees_nothing(app: Flask, caller: Caller, engine: Engine) -> None:
    stranger = new_caller(app, engine, "rival")
    for body in (REAPPRAISAL, SCORING):
        job = caller.post("/v1/jobs", json=body).headers["Location"]
        for path in (job, f"{job}/results?custom_id=c", f"{job}/report"):
            assert stranger.get(path).status_code == 404
        assert stranger.post(f"{job}/cancel").status_code == 404
