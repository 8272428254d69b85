"""What the API says of itself: its description, its health, its metrics, and that answers are shaped as described."""

from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from jsonschema import Draft202012Validator
from sqlalchemy import Engine, text
from structlog.testing import capture_logs

from services.foundation.database import transaction
from services.foundation.identifiers import new_id
from services.foundation.settings import Settings
from services.jobs.claim import claim
from services.jobs.lease import enrol, renew, retire
from services.vocabulary import WorkerState
from tests.factories import MODEL, comparisons
from tests.integration.api.conftest import JOB, REASONING, Caller, check_problem, started


def references(shape: Any) -> set[str]:
    """Every `$ref` in a document."""
    if isinstance(shape, dict):
        own = {shape["$ref"]} if isinstance(shape.get("$ref"), str) else set()
        return own.union(*map(references, shape.values()))
    return set().union(*map(references, shape)) if isinstance(shape, list) else set()


def check_shape(document: dict[str, Any], name: str, value: Any) -> None:
    """Assert that `value` is as the document describes `name`."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    Draft202012Validator(schema).validate(value)


def test_the_description_holds_together(app: Flask) -> None:
    response = app.test_client().get("/openapi.json")
    assert (response.status_code, response.mimetype) == (200, "application/json")
    document = response.json
    assert document is not None
    assert document["openapi"].startswith("3.1")
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    operations = [call["operationId"] for path in document["paths"].values() for call in path.values()]
    assert len(operations) == len(set(operations))


def test_every_route_is_described(app: Flask) -> None:
    described = {
        (path, method.upper())
        for path, operations in app.test_client().get("/openapi.json").json["paths"].items()
        for method in operations
    }
    served = {
        (rule.rule.replace("<", "{").replace(">", "}"), method)
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert served - described == {("/openapi.json", "GET"), ("/docs", "GET")}
    assert described <= served


def test_answers_are_as_described(app: Flask, caller: Caller) -> None:
    document = app.test_client().get("/openapi.json").json
    body = {**JOB, "items": comparisons(2), "callback": {"url": "https://example.org/x"}, "metadata": {"a": 1}}
    check_shape(document, "InlineJobRequest", body)
    response = caller.post("/v1/jobs", json=body)
    job = response.headers["Location"]
    check_shape(document, "Job", response.json)
    check_shape(document, "JobPage", caller.get("/v1/jobs").json)
    check_shape(document, "ResultDetail", caller.get(f"{job}/results?custom_id=q0").json)
    check_shape(document, "Report", caller.get(f"{job}/report").json)
    check_shape(document, "ModelList", caller.get("/v1/models").json)
    cancelled = caller.post(f"{job}/cancel").json
    check_shape(document, "Job", cancelled)
    page = caller.get(f"{job}/results").json
    check_shape(document, "ResultPage", page)
    assert page is not None
    check_shape(document, "Result", page["data"][0])
    problem = check_problem(caller.submit([{}]), 422, "invalid_request")
    check_shape(document, "Problem", problem)


def test_the_page_for_people_stands_alone(app: Flask) -> None:
    response = app.test_client().get("/docs")
    assert (response.status_code, response.mimetype) == (200, "text/html")
    page = response.text
    assert "/v1/jobs/{job_id}/results" in page
    assert "custom_id" in page
    for foreign in ("<script", 'src="', "http://", "//cdn"):
        assert foreign not in page.replace("https://example.org", "")


def test_alive_and_ready(app: Flask) -> None:
    client = app.test_client()
    assert client.get("/healthz").json == {"status": "ok"}
    assert client.get("/readyz").json == {"status": "ready"}


def test_the_fleet_and_who_serves_it(caller: Caller, engine: Engine) -> None:
    epoch = new_id()
    states = [(MODEL, "ready", 60), (MODEL, "starting", 60), (MODEL, "ready", -1), (REASONING, "unhealthy", 60)]
    with transaction(engine) as connection:
        for model, state, lease in states:
            connection.execute(
                text(
                    "INSERT INTO worker (id, model, hostname, pid, state, slots, running_calls, tokens_per_second, "
                    "epoch_id, lease_until) VALUES (:id, :model, 'h', 1, :state, 4, 3, 10.5, :epoch, "
                    "now() + make_interval(secs => :lease))"
                ),
                {
                    "id": new_id(),
                    "model": model,
                    "state": state,
                    "lease": lease,
                    "epoch": epoch if state == "ready" else None,
                },
            )
    caller.submit(40)
    assert claim(engine, new_id(), MODEL) is not None
    listed = caller.get("/v1/models").json
    assert listed is not None
    models = {model["name"]: model for model in listed["data"]}
    assert set(models) == {MODEL, REASONING}
    served = models[MODEL]
    assert (served["protocol"], served["mode"], served["health"]) == ("sdrm", "direct", "ready")
    assert (served["workers"], served["running_calls"], served["tokens_per_second"]) == (2, 6, 21.0)
    assert (served["epochs"], served["queue_depth"]) == ([str(epoch)], 8)
    assert (models[REASONING]["health"], models[REASONING]["queue_depth"]) == ("unhealthy", 0)


@pytest.mark.parametrize(
    ("states", "health"),
    [
        (["defunct"], "defunct"),
        (["stopped", "defunct"], "defunct"),
        (["defunct", "stopped"], "offline"),
        (["defunct", "starting"], "starting"),
        (["restarting", "defunct"], "restarting"),
    ],
)
def test_a_model_whose_last_worker_gave_up_is_defunct(
    caller: Caller, engine: Engine, states: list[str], health: str
) -> None:
    for at, state in enumerate(states):
        worker_id = new_id()
        enrol(engine, worker_id, MODEL, "h", 1, 4, 60)
        if state in ("stopped", "defunct"):
            retire(engine, worker_id, defunct=state == "defunct")
        else:
            renew(engine, worker_id, 60 + at, WorkerState(state), 0, 0.0)
    listed = caller.get("/v1/models").json
    assert listed is not None
    assert {model["name"]: model["health"] for model in listed["data"]}[MODEL] == health


def test_a_model_that_nobody_serves_is_offline_and_takes_jobs(caller: Caller) -> None:
    listed = caller.get("/v1/models").json
    assert listed is not None
    assert {model["health"] for model in listed["data"]} == {"offline"}
    assert caller.submit(1).status_code == 202


def test_metrics(app: Flask, caller: Caller) -> None:
    caller.submit(5)
    caller.get("/v1/jobs/no_such_job/results?custom_id=secret")
    caller.get("/private-path")
    page = app.test_client().get("/metrics").text
    assert f'assizes_jobs_submitted_total{{model="{MODEL}"}} 1.0' in page
    assert f'assizes_queued_chunks{{model="{MODEL}"}} 1.0' in page
    assert f'assizes_queued_chunks{{model="{REASONING}"}} 0.0' in page
    assert 'assizes_http_requests_total{method="POST",route="/v1/jobs",status="202"} 1.0' in page
    assert 'route="/v1/jobs/<job_id>/results",status="404"' in page
    assert 'route="none",status="404"' in page
    assert "assizes_database_up 1.0" in page
    for text_of_a_caller in ("secret", "no_such_job", "private-path", caller.key):
        assert text_of_a_caller not in page


def test_without_a_database(settings: Settings, short_folder: Path) -> None:
    nowhere = settings.model_copy(update={"database_url": f"postgresql+psycopg://postgres@/none?host={short_folder}"})
    for app in started(nowhere):
        client = app.test_client()
        assert client.get("/healthz").status_code == 200
        assert "assizes_database_up 0.0" in client.get("/metrics").text
        with capture_logs():
            check_problem(client.get("/readyz"), 503, "database_unavailable")
            response = client.get("/v1/jobs", headers={"Authorization": "Bearer ask_any"})
        assert check_problem(response, 503, "database_unavailable")["retryable"] is True
        assert int(response.headers["Retry-After"]) > 0
