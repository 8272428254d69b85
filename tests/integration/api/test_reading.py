"""Reading jobs, results and traces while chunks end, are cancelled, or expire."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flask import Flask
from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.foundation.identifiers import new_id, parsed
from services.jobs.claim import Claim, claim
from services.jobs.record import Batch, Recorder
from services.jobs.rescue import expire_overdue
from services.vocabulary import ItemStatus, Order, Winner
from tests.factories import MODEL
from tests.hearings import opinion as said
from tests.integration.api.conftest import REASONING, Caller, check_problem, id_of, new_caller

PUBLIC = "http://127.0.0.1"
WORKER = new_id()
NDJSON = "application/x-ndjson"
FOUR_A_CHUNK: dict[str, Any] = {"judges": [REASONING], "options": {"samples": 16}}  # 32 calls an item, 128 a chunk


def hold(engine: Engine, model: str = MODEL) -> Claim:
    """Claim the next chunk."""
    held = claim(engine, WORKER, model)
    assert held is not None
    return held


def verdict(held: Claim, seq: int, failed: bool = False) -> tuple[Any, ...]:
    """A verdict's row."""
    if failed:
        return (held.job_id, seq, "failed", *[None] * 6, "truncated", 'cut "short"\n', 2, 20, 4, 2)
    return (held.job_id, seq, "succeeded", "A", 0.75, True, *[None] * 5, 2, 20, 4, 2)


def opinion(judge: str) -> dict[str, Any]:
    """An opinion as it is stored: both orders say A."""
    both = {order: {Winner.A: 1} for order in Order}
    return replace(said(judge), p_a=0.75, consistent=True, votes=both, valid=2, calls=2, prompt_tokens=20).as_json()


def heard(held: Claim, seqs: Sequence[int], failed: Sequence[int] = ()) -> Batch:
    """What a worker writes for these items: two calls each."""
    return Batch(
        opinions=[(held.job_id, seq, held.model, json.dumps(opinion(held.model))) for seq in seqs],
        verdicts=[verdict(held, seq, seq in failed) for seq in seqs],
        calls=2 * len(seqs),
        prompt_tokens=20 * len(seqs),
        cached_tokens=4 * len(seqs),
        completion_tokens=2 * len(seqs),
    )


def finish(engine: Engine, held: Claim, failed: Sequence[int] = ()) -> None:
    """Hear a whole chunk and end it."""
    batch = heard(held, range(held.first_seq, held.end_seq), failed)
    Recorder(engine, held, PUBLIC).end(batch)


def trace(held: Claim, seq: int, call: int, **changes: Any) -> tuple[Any, ...]:
    """A trace's row."""
    row = {
        "order": "ab",
        "slots": [0, 1],
        "sample": 0,
        "forced": False,
        "epoch": WORKER,
        "outcome": "decided",
        "reading": json.dumps({"rule": "verdict_tag", "winner": "A"}),
        "prompt": '"ask\\u0000\\ud835é"',
        "sha256": "0" * 64,
        "completion": '"<verdict>A</verdict>"',
        "finish": "stop",
        "prompt_tokens": 10,
        "cached": 2,
        "completion_tokens": 1,
        "logprobs": json.dumps({"A": -0.25, "B": -1.5}),
        "sampling": json.dumps({"temperature": 0.5}),
        "error": None,
        "sent": datetime(2026, 11, 29, 12, tzinfo=UTC),
        "latency": 12.5,
        "queue": None,
        **changes,
    }
    return (held.day, held.job_id, seq, held.stage, held.model, call, *row.values())


def get_json(caller: Caller, path: str, **headers: str) -> dict[str, Any]:
    response = caller.get(path, **headers)
    assert response.status_code == 200, response.text
    assert response.json is not None
    return response.json


def lines(caller: Caller, path: str) -> list[dict[str, Any]]:
    response = caller.get(path, Accept=NDJSON)
    assert (response.status_code, response.mimetype) == (200, NDJSON)
    return [json.loads(line) for line in response.text.splitlines()]


def all_pages(caller: Caller, path: str, limit: int) -> list[dict[str, Any]]:
    """Every result of an ended job, page by page as a simple client does."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        page = get_json(caller, f"{path}?limit={limit}{after}")
        assert len(page["data"]) <= limit
        found += page["data"]
        assert page["has_more"] == (page["next"] is not None)
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


def test_counts_always_sum_to_the_total(caller: Caller, engine: Engine) -> None:
    response = caller.submit(70)
    job = response.headers["Location"]

    def seen() -> tuple[int, ...]:
        shown = get_json(caller, job)
        counts = shown["counts"]
        assert sum(counts.values()) == 2 * counts["total"]
        assert shown["progress"]["done"] == counts["total"] - counts["queued"] - counts["running"]
        return tuple(counts[name] for name in ("queued", "running", "succeeded", "failed", "cancelled"))

    assert seen() == (70, 0, 0, 0, 0)
    first, second = hold(engine), hold(engine)
    assert seen() == (6, 64, 0, 0, 0)
    recorder = Recorder(engine, first, PUBLIC)
    recorder.flush(heard(first, range(10), failed=[3]))
    assert seen() == (6, 54, 9, 1, 0)
    usage = get_json(caller, job)["usage"]
    assert usage == {"calls": 20, "prompt_tokens": 200, "cached_tokens": 40, "completion_tokens": 20}
    recorder.end(heard(first, range(10, 32)))
    assert seen() == (6, 32, 31, 1, 0)
    assert caller.post(f"{job}/cancel").status_code == 200
    assert seen()[1:4] == (32, 31, 1)
    Recorder(engine, second, PUBLIC).release(heard(second, range(32, 40)))
    assert seen() == (0, 0, 39, 1, 30)
    shown = get_json(caller, job)
    assert (shown["status"], shown["usage"]["calls"]) == ("cancelled", 80)
    assert shown["started_at"] <= shown["cancelling_at"] <= shown["ended_at"]


def test_progress_tells_a_rate_and_an_end(caller: Caller, engine: Engine) -> None:
    job = caller.submit(64).headers["Location"]
    finish(engine, hold(engine))
    shown = get_json(caller, job)
    assert shown["status"] == "running"
    assert shown["progress"]["per_second"] > 0
    assert datetime.fromisoformat(shown["progress"]["eta"]) > datetime.fromisoformat(shown["started_at"])
    finish(engine, hold(engine))
    shown = get_json(caller, job)
    assert (shown["status"], shown["progress"]["eta"], shown["progress"]["done"]) == ("completed", None, 64)


def test_a_job_that_has_not_changed_is_not_sent_again(caller: Caller, engine: Engine) -> None:
    location = caller.submit(64).headers["Location"]
    etags: set[str] = set()

    def check_changed() -> None:
        response = caller.get(location)
        etag = response.headers["ETag"]
        assert etag.startswith('W/"')
        assert etag not in etags
        etags.add(etag)
        again = caller.get(location, If_None_Match=etag)
        assert (again.status_code, again.text, again.headers["ETag"]) == (304, "", etag)

    check_changed()
    held = hold(engine)
    check_changed()
    recorder = Recorder(engine, held, PUBLIC)
    recorder.flush(heard(held, range(5)))
    check_changed()
    recorder.end(heard(held, range(5, 32)))
    check_changed()
    assert "Retry-After" in caller.get(location).headers
    caller.post(f"{location}/cancel")
    check_changed()
    assert "Retry-After" not in caller.get(location).headers


def test_a_result_line_has_the_agreed_shape(caller: Caller, engine: Engine) -> None:
    job = caller.submit(2).headers["Location"]
    finish(engine, hold(engine), failed=[1])
    usage = {"calls": 2, "prompt_tokens": 20, "cached_tokens": 4, "completion_tokens": 2}
    expected = [
        {
            "custom_id": "q0",
            "seq": 0,
            "status": "succeeded",
            "verdict": {
                "winner": "A",
                "p_a": 0.75,
                "consistent": True,
                "opinions": [opinion(MODEL)],
            },
            "error": None,
            "usage": usage,
        },
        {
            "custom_id": "q1",
            "seq": 1,
            "status": "failed",
            "verdict": None,
            "error": {"code": "truncated", "message": 'cut "short"\n'},
            "usage": usage,
        },
    ]
    assert lines(caller, f"{job}/results") == expected
    page = get_json(caller, f"{job}/results")
    assert page == {"data": expected, "has_more": False, "next": None}
    assert get_json(caller, job)["status"] == "completed_with_errors"


def test_every_result_exactly_once_however_it_is_read(caller: Caller, engine: Engine) -> None:
    """Chunks end in any order while pages are read; who goes on from a cursor misses nothing and repeats nothing."""
    chance = random.Random(20261129)
    job = caller.submit(50, **FOUR_A_CHUNK)
    path = f"{job.headers['Location']}/results"
    held = [hold(engine, REASONING) for _ in range(10)]
    chance.shuffle(held)
    read: list[int] = []
    after = ""
    for place in held:
        finish(engine, place, failed=[place.first_seq])
        for _ in range(chance.randrange(3)):
            page = get_json(caller, f"{path}?limit={chance.randint(1, 7)}{after}")
            read += [result["seq"] for result in page["data"]]
            after = f"&after={page['next']}" if page["next"] else after
    caller.post(f"{job.headers['Location']}/cancel")
    while True:
        page = get_json(caller, f"{path}?limit=3{after}")
        read += [result["seq"] for result in page["data"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert sorted(read) == list(range(50))
    assert [result["seq"] for result in lines(caller, path)] == read
    assert [result["seq"] for result in all_pages(caller, path, 7)] == read
    assert read == [seq for place in held for seq in range(place.first_seq, place.end_seq)] + list(range(40, 50))
    resumed = lines(caller, f"{path}?{after[1:]}")
    assert [result["seq"] for result in resumed] == read[-len(resumed) :]


def test_results_by_status(caller: Caller, engine: Engine) -> None:
    job = caller.submit(100).headers["Location"]
    finish(engine, hold(engine), failed=[1, 30])
    finish(engine, hold(engine), failed=[40])
    caller.post(f"{job}/cancel")

    def seqs(status: ItemStatus) -> list[int]:
        streamed = [result["seq"] for result in lines(caller, f"{job}/results?status={status}")]
        paged, after = [], ""
        while True:
            page = get_json(caller, f"{job}/results?status={status}&limit=2{after}")
            paged += [result["seq"] for result in page["data"]]
            assert {result["status"] for result in page["data"]} <= {status}
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        assert streamed == paged
        return paged

    assert seqs(ItemStatus.FAILED) == [1, 30, 40]
    assert seqs(ItemStatus.SUCCEEDED) == [seq for seq in range(64) if seq not in {1, 30, 40}]
    assert seqs(ItemStatus.CANCELLED) == list(range(64, 100))
    assert seqs(ItemStatus.EXPIRED) == []


def test_nothing_is_shown_before_its_chunk_has_ended(caller: Caller, engine: Engine) -> None:
    job = caller.submit(40).headers["Location"]
    held = hold(engine)
    Recorder(engine, held, PUBLIC).flush(heard(held, range(5)))
    assert get_json(caller, f"{job}/results") == {"data": [], "has_more": False, "next": None}
    assert lines(caller, f"{job}/results") == []


def test_a_running_job_can_be_followed(caller: Caller, engine: Engine) -> None:
    job = caller.submit(64).headers["Location"]
    finish(engine, hold(engine))
    page = get_json(caller, f"{job}/results")
    assert (len(page["data"]), page["has_more"]) == (32, False)
    after = page["next"]
    assert get_json(caller, f"{job}/results?after={after}") == {"data": [], "has_more": False, "next": after}
    finish(engine, hold(engine))
    page = get_json(caller, f"{job}/results?after={after}")
    assert ([result["seq"] for result in page["data"]], page["next"]) == (list(range(32, 64)), None)


def test_items_of_an_expired_job(caller: Caller, engine: Engine) -> None:
    response = caller.submit(40)
    job = response.headers["Location"]
    held = hold(engine)
    Recorder(engine, held, PUBLIC).flush(heard(held, range(3), failed=[2]))
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deadline = now() - interval '1 second'"))
    assert expire_overdue(engine, PUBLIC) == 1
    shown = get_json(caller, job)
    assert (shown["status"], shown["counts"]["expired"]) == ("expired", 37)
    statuses = [(result["seq"], result["status"]) for result in lines(caller, f"{job}/results")]
    assert statuses == [(0, "succeeded"), (1, "succeeded"), (2, "failed"), *((seq, "expired") for seq in range(3, 40))]
    expired = lines(caller, f"{job}/results?status=expired")[0]
    assert (expired["verdict"], expired["error"], expired["usage"]["calls"]) == (None, None, 0)


def test_one_result_with_its_item_opinions_and_traces(caller: Caller, engine: Engine) -> None:
    ids = ["a/b?c=d&e", "q\0", "\ud835", "é ", "+%2B"]
    items = [
        {
            "custom_id": custom_id,
            "context": [{"role": "user", "content": "x"}],
            "candidates": [{"content": "1"}, {"content": "\ud835"}],
        }
        for custom_id in ids
    ]
    job = caller.submit_text(json.dumps({"kind": "judgement", "judges": [MODEL], "items": items}))
    path = f"{job.headers['Location']}/results"

    def one(custom_id: str) -> dict[str, Any]:
        quoted = "".join(f"%{byte:02X}" for byte in custom_id.encode("utf-8", "surrogatepass"))
        return get_json(caller, f"{path}?custom_id={quoted}")

    assert (one("é ")["status"], one("é ")["traces"], one("é ")["opinions"]) == ("queued", [], [])
    held = hold(engine)
    assert one("é ")["status"] == "running"
    batch = heard(held, range(len(ids)), failed=[1])
    batch.traces = [
        trace(held, 1, 1, order="ba", outcome="failed", error='"no\\u0000"', completion=None, logprobs=None),
        trace(held, 1, 0),
        trace(held, 2, 0, prompt=None),
    ]
    Recorder(engine, held, PUBLIC).end(batch)
    for seq, (custom_id, item) in enumerate(zip(ids, items, strict=True)):
        found = one(custom_id)
        assert (found["custom_id"], found["seq"], found["item"]) == (custom_id, seq, item)
    failed = one("q\0")
    assert (failed["status"], failed["verdict"], failed["error"]["code"]) == ("failed", None, "truncated")
    assert failed["opinions"] == [opinion(MODEL)]
    first, second = failed["traces"]
    assert first == {
        "custom_id": "q\0",
        "seq": 1,
        "stage": "hear",
        "judge": MODEL,
        "call": 0,
        "order": "ab",
        "slots": [0, 1],
        "sample": 0,
        "forced": False,
        "outcome": "decided",
        "finish_reason": "stop",
        "prompt_sha256": "0" * 64,
        "prompt_tokens": 10,
        "cached_tokens": 2,
        "completion_tokens": 1,
        "error_message": None,
        "sent_at": "2026-11-29T12:00:00.000Z",
        "latency_ms": 12.5,
        "queue_ms": None,
        "epoch_id": str(WORKER),
        "reading": {"rule": "verdict_tag", "winner": "A"},
        "label_logprobs": {"A": -0.25, "B": -1.5},
        "sampling": {"temperature": 0.5},
        "prompt": "ask\0\ud835é",
        "completion": "<verdict>A</verdict>",
    }
    assert (second["call"], second["order"], second["error_message"]) == (1, "ba", "no\0")
    assert (second["completion"], second["label_logprobs"]) == (None, None)
    check_problem(caller.get(f"{path}?custom_id=nobody"), 404, "not_found")
    check_problem(caller.get(f"{path}?custom_id="), 404, "not_found")


def test_traces_of_a_job_by_item_and_call(caller: Caller, engine: Engine) -> None:
    job = caller.submit(64).headers["Location"]
    held = hold(engine)
    batch = heard(held, range(32))
    calls = [(seq, call) for seq in range(32) for call in range(8)]
    batch.traces = [trace(held, seq, call) for seq, call in random.Random(5).sample(calls, len(calls))]
    Recorder(engine, held, PUBLIC).flush(batch)
    found = lines(caller, f"{job}/traces")
    assert [(one["seq"], one["call"]) for one in found] == calls
    assert {one["custom_id"] for one in found} == {f"q{seq}" for seq in range(32)}


def test_a_report_for_programs_and_for_people(caller: Caller, engine: Engine) -> None:
    response = caller.submit(4, name="first")
    job = response.headers["Location"]
    empty = get_json(caller, f"{job}/report")
    assert empty["job"]["name"] == "first"
    held = hold(engine)
    Recorder(engine, held, PUBLIC).end(heard(held, range(4)))
    assert get_json(caller, f"{job}/report")["sides"]["A"]["rate"] == 1.0
    text_of_it = caller.get(f"{job}/report", Accept="text/markdown")
    assert text_of_it.mimetype == "text/markdown"
    assert text_of_it.text.startswith("#")


def test_jobs_are_listed_newest_first_page_by_page(caller: Caller) -> None:
    ids = [caller.submit(1, name=str(number)).headers["Location"].rpartition("/")[2] for number in range(5)]
    caller.post(f"/v1/jobs/{ids[1]}/cancel")
    found: list[str] = []
    after = ""
    while True:
        page = get_json(caller, f"/v1/jobs?limit=2{after}")
        found += [job["id"] for job in page["data"]]
        assert page["has_more"] == (page["next"] is not None)
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert found == ids[::-1]
    assert [job["id"] for job in get_json(caller, "/v1/jobs?status=cancelled")["data"]] == [ids[1]]
    assert get_json(caller, "/v1/jobs?status=failed") == {"data": [], "has_more": False, "next": None}


def test_cancelling_is_idempotent(caller: Caller) -> None:
    job = caller.submit(3).headers["Location"]
    first = caller.post(f"{job}/cancel")
    assert first.json is not None
    assert (first.status_code, first.json["status"], first.json["counts"]["cancelled"]) == (200, "cancelled", 3)
    assert caller.post(f"{job}/cancel").json == first.json
    assert [result["status"] for result in lines(caller, f"{job}/results")] == ["cancelled"] * 3


def test_tenants_never_meet(app: Flask, caller: Caller, engine: Engine) -> None:
    mine = caller.submit(3)
    job = mine.headers["Location"]
    held = hold(engine)
    batch = heard(held, range(3))
    batch.traces = [trace(held, 0, 0)]
    Recorder(engine, held, PUBLIC).flush(batch)
    stranger = new_caller(app, engine, "stranger")
    for tail in ("", "/results", "/results?custom_id=q0", "/traces", "/report"):
        assert caller.get(job + tail).status_code == 200
        theirs = check_problem(stranger.get(job + tail), 404, "not_found")
        nobodys = check_problem(stranger.get(f"/v1/jobs/job_{new_id().hex}{tail}"), 404, "not_found")
        assert theirs["detail"] == nobodys["detail"]
        check_problem(stranger.get(job + tail, Accept=NDJSON), 404, "not_found")
    check_problem(stranger.post(f"{job}/cancel"), 404, "not_found")
    assert get_json(stranger, "/v1/jobs")["data"] == []
    after = parsed("job", job.rpartition("/")[2])
    assert isinstance(after, UUID)
    assert get_json(stranger, f"/v1/jobs?after=job_{after.hex}")["data"] == []
    assert get_json(caller, job)["status"] == "running"
    assert stranger.submit(3).status_code == 202
    assert len(get_json(caller, "/v1/jobs")["data"]) == 1
    assert id_of(mine) == after
