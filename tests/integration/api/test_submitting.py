"""Submitting: what a 202 has made, all of it in one transaction."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from flask import Flask
from sqlalchemy import Engine, text

from embedded.valkey import Valkey
from services.foundation.broker import hear_queue
from services.foundation.database import transaction
from services.foundation.settings import Settings
from services.jobs.submit import chunk_size
from services.vocabulary import Stage
from tests.factories import MODEL, comparisons
from tests.integration.api.conftest import (
    JOB,
    NOTHING,
    REASONING,
    Caller,
    check_problem,
    id_of,
    kept,
    new_caller,
    started,
)


def rows(engine: Engine, statement: str, **values: object) -> list[dict[str, Any]]:
    with transaction(engine) as connection:
        return [dict(row) for row in connection.execute(text(statement), values).mappings()]


def test_a_job_is_accepted_and_shown(caller: Caller) -> None:
    response = caller.submit(3, name="nightly", metadata={"run": "42"}, priority="bulk")
    assert response.status_code == 202
    job = response.json
    assert job is not None
    assert response.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert int(response.headers["Retry-After"]) >= 1
    assert (job["kind"], job["status"], job["name"], job["judges"]) == ("judgement", "queued", "nightly", [MODEL])
    assert (job["priority"], job["metadata"], job["version"]) == ("bulk", {"run": "42"}, 1)
    assert job["counts"] == {
        "total": 3,
        "queued": 3,
        "running": 0,
        "succeeded": 0,
        "failed": 0,
        "cancelled": 0,
        "expired": 0,
    }
    assert job["usage"] == {"calls": 0, "prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0}
    assert job["progress"] == {"done": 0, "per_second": None, "eta": None}
    assert (job["started_at"], job["cancelling_at"], job["ended_at"], job["callback"]) == (None, None, None, None)
    (options,) = job["options"].values()
    assert (options["mode"], options["decide"], job["panel"]) == ("direct", "soft", None)
    created, deadline = (datetime.fromisoformat(job[name]) for name in ("created_at", "deadline"))
    assert deadline - created == timedelta(days=7)
    assert caller.get(f"/v1/jobs/{job['id']}").json == job


def test_items_rest_as_they_were_sent(caller: Caller, engine: Engine) -> None:
    first = (
        '{ "candidates":[{"content":"a\\u0000"},{"content":"\\ud835 é","system":"s"}], "custom_id": "q\\u0000/\\u0031",'
        '"context":[{"role":"user","content":"x"}],"label":"B","cluster":"c" }'
    )
    second = json.dumps(comparisons(1)[0])
    body = f'{{"kind":"judgement","judges":["{MODEL}"],"items":[{first},{second}]}}'
    job_id = id_of(caller.submit_text(body))
    stored = rows(engine, "SELECT * FROM item WHERE job_id = :id ORDER BY seq", id=job_id)
    assert [(row["seq"], row["custom_id"], row["input"]) for row in stored] == [
        (0, '"q\\u0000/1"', first),
        (1, '"q0"', second),
    ]
    assert json.loads(stored[0]["facets"]) == {"label": "B", "cluster": "c", "systems": [None, "s"]}


def test_an_upload_rests_as_it_was_sent(caller: Caller, engine: Engine) -> None:
    lines = [json.dumps(item, ensure_ascii=False) for item in comparisons(5)]
    body = "\ufeff" + " \r\n\n".join(lines) + "\n"
    response = caller.upload(body.encode(), name="bulk")
    assert response.status_code == 202, response.text
    stored = rows(engine, "SELECT * FROM item WHERE job_id = :id ORDER BY seq", id=id_of(response))
    assert [row["input"] for row in stored] == lines


@pytest.mark.parametrize(
    ("items", "options", "sizes"),
    [
        (70, {}, [32, 32, 6]),
        (64, {"orders": "given"}, [32, 32]),
        (50, {"samples": 3}, [21, 21, 8]),
        (5, {"samples": 16}, [4, 1]),
        (1, {"samples": 16, "orders": "given"}, [1]),
    ],
)
def test_chunks_hold_at_most_32_items_and_128_calls(
    caller: Caller, engine: Engine, items: int, options: dict[str, Any], sizes: list[int]
) -> None:
    job_id = id_of(caller.submit(items, judges=[REASONING], options=options, priority="interactive"))
    chunks = rows(engine, "SELECT * FROM chunk WHERE job_id = :id ORDER BY ordinal", id=job_id)
    assert [row["end_seq"] - row["first_seq"] for row in chunks] == sizes
    assert [row["first_seq"] for row in chunks] == [0, *(row["end_seq"] for row in chunks[:-1])]
    assert [row["ordinal"] for row in chunks] == list(range(len(sizes)))
    assert {(row["stage"], row["model"], row["part"], row["state"], row["priority"]) for row in chunks} == {
        ("hear", REASONING, 0, "queued", 0)
    }


def test_an_item_with_more_calls_than_a_chunk_holds_is_a_chunk_of_its_own() -> None:
    sizes = [chunk_size({Stage.HEAR: {"tiny": calls, "other": 1}}) for calls in (1, 4, 5, 128, 200)]
    assert sizes == [32, 32, 25, 1, 1]


def test_traces_have_a_partition_as_soon_as_the_job_is_there(caller: Caller, engine: Engine) -> None:
    job_id = id_of(caller.submit())
    caller.submit()
    (job,) = rows(engine, "SELECT day FROM job WHERE id = :id", id=job_id)
    (there,) = rows(engine, "SELECT to_regclass(:name)::text AS name", name=f"trace_{job['day']:%Y_%m_%d}")
    assert there["name"] is not None


def test_metadata_comes_back_as_sent(caller: Caller) -> None:
    metadata = f'{{ "n":{"9" * 5000},  "s":"\\u0000\\ud835\\u00e9" }}'
    items = json.dumps(comparisons(1))
    body = f'{{"kind":"judgement","judges":["{MODEL}"],"items":{items},"metadata":{metadata}}}'
    response = caller.submit_text(body)
    assert response.status_code == 202
    assert metadata in response.text
    assert metadata in caller.get("/v1/jobs").text


def test_deadlines(caller: Caller, engine: Engine) -> None:
    now = datetime.now(UTC)
    soon = now + timedelta(hours=1)
    job = caller.submit(deadline=soon.isoformat()).json
    assert job is not None
    assert abs(datetime.fromisoformat(job["deadline"]) - soon) < timedelta(milliseconds=1)
    for wrong in (now - timedelta(seconds=1), now + timedelta(days=30, hours=1)):
        problem = check_problem(caller.submit(deadline=wrong.isoformat()), 422, "invalid_request")
        assert [(fault["pointer"], fault["code"]) for fault in problem["errors"]] == [("/deadline", "invalid_value")]
    assert kept(engine)["job"] == 1


def test_a_callback_is_shown(caller: Caller) -> None:
    callback = {"url": "https://example.org/hook", "events": ["job.failed"], "include": "summary"}
    job = caller.submit(callback=callback).json
    assert job is not None
    assert job["callback"] == callback


def test_the_models_bell_is_rung(caller: Caller, valkey_server: Valkey) -> None:
    caller.submit(70)
    with redis.Redis(unix_socket_path=str(valkey_server.socket)) as broker:
        assert broker.llen(hear_queue(MODEL)) == 3
        assert broker.llen(hear_queue("other")) == 0


def test_jobs_are_accepted_without_a_broker(settings: Settings, engine: Engine, short_folder: Path) -> None:
    nowhere = settings.model_copy(update={"redis_url": f"redis+socket://{short_folder}/nobody.sock?virtual_host=0"})
    for app in started(nowhere):
        assert new_caller(app, engine, "acme").submit(2).status_code == 202
    assert kept(engine) == {"job": 1, "item": 2, "chunk": 1}


def test_hostile_texts_come_back_unchanged(caller: Caller, shared: Path) -> None:
    cases = [
        json.loads(line)
        for line in (shared / "cases" / "hostile_candidates.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    items = [
        {"custom_id": case["id"], "context": case["context"], "candidates": [*map(whole, case["candidates"])]}
        for case in cases
    ]
    job = caller.upload("\n".join(json.dumps(item) for item in items).encode()).json
    assert job is not None
    for item in items:
        response = caller.get(f"/v1/jobs/{job['id']}/results?custom_id={item['custom_id']}")
        assert json.loads(response.text)["item"] == item


def whole(candidate: dict[str, Any]) -> dict[str, Any]:
    """A candidate whose long content is spelled out."""
    parts = candidate.get("content_parts")
    if parts is None:
        return candidate
    return {"content": "".join(p if isinstance(p, str) else p["repeat"][0] * p["repeat"][1] for p in parts)}


def test_nothing_is_kept_when_the_last_item_is_wrong(caller: Caller, engine: Engine) -> None:
    problem = check_problem(caller.submit([*comparisons(40), {"custom_id": "x"}]), 422, "invalid_request")
    assert problem["error_count"] == 1
    assert problem["errors"][0]["pointer"] == "/items/40/context"
    assert "line" not in problem["errors"][0]
    assert kept(engine) == NOTHING


def test_the_same_id_twice_in_a_body(caller: Caller, engine: Engine) -> None:
    twice = [*comparisons(3), *comparisons(2)]
    problem = check_problem(caller.submit(twice), 422, "invalid_request")
    assert [(fault["pointer"], fault["code"]) for fault in problem["errors"]] == [
        ("/items/3/custom_id", "duplicate_custom_id"),
        ("/items/4/custom_id", "duplicate_custom_id"),
    ]
    assert kept(engine) == NOTHING


def test_two_jobs_may_have_the_same_ids(caller: Caller, engine: Engine) -> None:
    assert caller.submit(2).status_code == caller.submit(2).status_code == 202
    assert kept(engine) == {"job": 2, "item": 4, "chunk": 2}


def test_a_key_that_was_sent_without_its_tenant_is_nobodys(app: Flask) -> None:
    check_problem(app.test_client().post("/v1/jobs", json={**JOB, "items": comparisons(1)}), 401, "unauthorized")
