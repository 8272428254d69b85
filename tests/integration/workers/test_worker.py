"""A real worker on a scripted runtime: what it asks, writes down, aborts and refuses."""

import base64
import json

import pytest
from sqlalchemy import text

from services.foundation.broker import HEAR, hear_queue, make_broker, ring
from services.foundation.database import transaction
from services.jobs.cancel import cancel
from services.jobs.states import ENDED
from tests.factories import MODEL, comparisons, queue_body
from tests.invariants import check_ended_job
from tests.parts import PATIENCE, Parts, eventually

OPINION = "SELECT body FROM opinion WHERE job_id = :job_id ORDER BY seq"
TRACES = "SELECT * FROM trace WHERE job_id = :job_id ORDER BY seq, call"


def test_direct_mode_asks_both_orders_and_takes_the_labels_probability(parts: Parts) -> None:
    parts.runtime()
    parts.script({"p_first": 0.8})
    parts.maintenance()
    parts.worker()
    job_id = parts.queue(parts.tenant(), 40)
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"], job["calls"]) == ("completed", 40, 80)
    bodies = [row["body"] for row in parts.rows(OPINION, job_id=job_id)]
    assert {(body["winner"], body["consistent"], body["first_slot"]) for body in bodies} == {("tie", False, 2)}
    assert all(body["p_a"] == pytest.approx(0.5) for body in bodies)
    traces = parts.rows(TRACES, job_id=job_id)
    assert [(trace["seq"], trace["shown_order"], trace["forced"]) for trace in traces] == [
        (seq, order, True) for seq in range(40) for order in ("ab", "ba")
    ]
    assert len({trace["epoch_id"] for trace in traces}) == 1
    epoch = parts.rows("SELECT * FROM runtime_epoch")[0]
    assert epoch["id"] == traces[0]["epoch_id"]
    assert epoch["runtime_version"] == "0.5.23"
    prompt = json.loads(traces[0]["prompt"])
    assert "What is 0 plus one?" in prompt
    assert prompt.endswith("<verdict>")


def test_a_reasoned_verdict_is_read_and_a_missing_one_is_forced(parts: Parts) -> None:
    parts.runtime()
    parts.script(
        {"match": "What is 0 plus one?", "text": "The first is right. <verdict>A</verdict>", "times": 1},
        {"match": "What is 0 plus one?", "text": "The second is right. <verdict>B</verdict>", "times": 1},
        {"match": "What is 1 plus one?", "text": "I ramble on", "finish_reason": "length", "times": 2},
    )
    parts.maintenance()
    parts.worker()
    job_id = parts.queue(parts.tenant(), 2, options={"mode": "reason"})
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["calls"]) == ("completed", 6)
    read, forced = (row["body"] for row in parts.rows(OPINION, job_id=job_id))
    assert (read["winner"], read["p_a"], read["consistent"], read["forced"]) == ("A", 1.0, True, 0)
    assert (forced["valid"], forced["forced"]) == (2, 2)
    follow_up = parts.rows(TRACES, job_id=job_id)[3]
    assert follow_up["forced"]
    assert json.loads(follow_up["prompt"]).endswith("I ramble on\n\n<verdict>")


def test_what_does_not_fit_or_is_refused_fails_with_its_own_code(parts: Parts) -> None:
    parts.runtime()
    parts.maintenance()
    parts.worker()
    items = comparisons(2)
    items[1]["candidates"][0]["content"] = "word " * 9000
    job_id = parts.queue(parts.tenant(), items)
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"], job["failed"]) == ("completed_with_errors", 1, 1)
    failed = parts.rows("SELECT * FROM verdict WHERE job_id = :job_id AND seq = 1", job_id=job_id)[0]
    assert (failed["error_code"], failed["winner"], failed["p_a"]) == ("context_overflow", None, None)


def test_cancelling_aborts_the_running_calls(parts: Parts) -> None:
    parts.runtime("--service-time", "lognormal:600,0.01", "--slots", "8")
    parts.script({"match": "the one question", "latency_s": 0})  # the call with which a worker begins
    parts.maintenance()
    parts.worker()
    tenant = parts.tenant()
    job_id = parts.queue(tenant, 100)
    eventually(lambda: parts.running_calls() >= 8, "calls run")
    with transaction(parts.engine) as connection:
        cancel(connection, tenant, job_id, "http://assizes.test")
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["cancelled"]) == ("cancelled", 100)
    eventually(lambda: parts.running_calls() == 0, "no call is left on the runtime", 10)


def test_a_bell_for_another_model_is_refused(parts: Parts) -> None:
    parts.runtime()
    parts.worker()
    tenant = parts.tenant()
    job_id = parts.queue(tenant, 1, judges=["other"])
    eventually(lambda: parts.rows("SELECT 1 FROM worker WHERE epoch_id IS NOT NULL"), "the worker is ready")
    broker = make_broker(parts.redis_url, patience=5)
    broker.send_task(HEAR, args=("other",), queue=hear_queue(MODEL))
    own = parts.queue(tenant, 1)
    broker.send_task(HEAR, args=(MODEL,), queue=hear_queue(MODEL))
    parts.wait_until_ended(own)
    assert parts.job(job_id)["status"] == "queued"
    broker.close()


def test_messages_that_are_no_bells_do_not_end_a_worker(parts: Parts) -> None:
    parts.runtime()
    worker = parts.worker()
    parts.wait_until_ready()
    broker, client, queue = make_broker(parts.redis_url, patience=5), parts.broker(), hear_queue("nobody's")
    ring(broker, "nobody's", 1)
    bell = json.loads(client.rpop(queue))
    foreign = {
        "no JSON": b"ring, ring",
        "no UTF-8": b"\xff\xfe",
        "no object": b"5",
        **{
            what: json.dumps(bell | changed).encode()
            for what, changed in {
                "nothing but a body": {"headers": None, "properties": None},
                "no headers": {"headers": None},
                "an unknown task": {"headers": {**bell["headers"], "task": "assizes.unknown"}},
                "an unknown task without an id": {"headers": {"task": "assizes.unknown"}},
                "a pickle": {"content-type": "application/x-python-serialize", "content-encoding": "binary"},
                "an unknown encoding": {"content-encoding": "unheard-of"},
                "a body that is no base64": {"body": "!"},
                "a body that is no JSON": {"body": base64.b64encode(b"ring, ring").decode()},
                "no arguments": {"body": base64.b64encode(b"5").decode()},
            }.items()
        },
    }
    tenant = parts.tenant()
    for what, message in foreign.items():
        client.lpush(hear_queue(MODEL), message)
        job_id = parts.queue(tenant, 1)
        ring(broker, MODEL, 1)  # which is taken after it
        worker.wait_until(lambda job_id=job_id: parts.job(job_id)["status"] in ENDED, PATIENCE)
        assert check_ended_job(parts.engine, job_id)["status"] == "completed", what
    eventually(lambda: client.hlen("unacked") == 0, "none is kept, to come again with another connection")
    assert worker.ended() is None
    client.close()
    broker.close()


def test_every_eighth_chunk_is_of_the_oldest_job(parts: Parts) -> None:
    parts.settings["CHUNK_SLOTS"] = "1"
    parts.runtime()
    parts.maintenance()
    tenant = parts.tenant()
    bulk = parts.queue(tenant, 64, priority="bulk")
    standard = parts.queue(tenant, 20 * 32)
    parts.worker()
    parts.wait_until_ended(bulk)
    parts.wait_until_ended(standard)
    claimed = [row["job_id"] for row in parts.rows("SELECT job_id FROM chunk WHERE stage = 'hear' ORDER BY claimed_at")]
    assert [place for place, job_id in enumerate(claimed, 1) if job_id == bulk] == [8, 16]


def test_sigterm_hands_running_chunks_back_and_stops(parts: Parts) -> None:
    parts.settings["DRAIN"] = "0"
    parts.runtime("--service-time", "lognormal:600,0.01")
    parts.maintenance()
    worker = parts.worker()
    job_id = parts.queue(parts.tenant(), 8)
    eventually(lambda: parts.running_calls() > 0, "calls run")
    assert worker.stop() == 0
    chunk = parts.rows("SELECT state, deaths FROM chunk WHERE job_id = :job_id", job_id=job_id)[0]
    assert chunk == {"state": "queued", "deaths": 0}
    left = "SELECT state, lease_until <= now() AS lapsed FROM worker"
    assert parts.rows(left) == [{"state": "stopped", "lapsed": True}]
    eventually(lambda: parts.running_calls() == 0, "no call is left on the runtime", 10)


def test_a_worker_outlives_an_outage_of_its_runtime(parts: Parts) -> None:
    runtime = parts.runtime("--service-time", "lognormal:0.2,0.1")
    parts.maintenance()
    parts.worker()
    job_id = parts.queue(parts.tenant(), 200)
    parts.wait_until_heard(job_id, 10)
    runtime.stop(grace_seconds=0)
    eventually(lambda: parts.rows("SELECT 1 FROM worker WHERE state = 'unhealthy'"), "the worker notices")
    parts.runtime()
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"], job["failed"]) == ("completed", 200, 0)
    # it is another start: what was in flight may have killed it. That is noted, and no item is charged for it
    assert parts.rows("SELECT max(deaths) AS n FROM chunk") == [{"n": 1}]


def test_a_claim_whose_answer_was_lost_is_given_up_and_heard_by_another_claim(parts: Parts) -> None:
    parts.runtime()
    parts.worker()
    worker = eventually(lambda: parts.rows("SELECT id FROM worker WHERE state = 'ready'"), "the worker is ready")[0]
    job_id = parts.queue(parts.tenant(), 2)
    with transaction(parts.engine) as connection:
        lost = text("UPDATE chunk SET state = 'running', fence = 1, claimed_by = :worker")
        connection.execute(lost, {"worker": worker["id"]})
    parts.maintenance()
    parts.wait_until_ended(job_id)
    assert check_ended_job(parts.engine, job_id)["succeeded"] == 2


def test_what_the_judge_writes_is_kept_whatever_it_holds(parts: Parts) -> None:
    parts.runtime()
    written = "nul \0, \u2028, a verdict of \0: <verdict>\0</verdict>, then <verdict>A</verdict>"
    parts.script({"text": written})
    parts.maintenance()
    parts.worker()
    job_id = parts.queue(parts.tenant(), 1, options={"mode": "reason", "orders": "given"})
    parts.wait_until_ended(job_id)
    assert check_ended_job(parts.engine, job_id)["succeeded"] == 1
    trace = parts.rows(TRACES, job_id=job_id)[0]
    assert json.loads(trace["completion"]) == written
    assert (trace["outcome"], trace["reading"]["winner"]) == ("decided", "A")


def test_a_worker_that_is_ready_holds_an_ordinary_lease(parts: Parts) -> None:
    parts.runtime()
    parts.worker()
    lease = "SELECT lease_until - now() < interval '4 s' AS ordinary FROM worker WHERE state = 'ready'"
    assert eventually(lambda: parts.rows(lease), "the worker is ready") == [{"ordinary": True}]


def test_a_call_that_the_runtime_aborts_by_itself_is_asked_again(parts: Parts) -> None:
    parts.runtime()
    parts.script({"text": "Half of", "finish_reason": "abort", "times": 1})
    parts.maintenance()
    parts.worker()
    job_id = parts.queue(parts.tenant(), 3, options={"mode": "reason"})
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"], job["calls"]) == ("completed", 3, 6)


def test_integers_that_python_does_not_read_as_numbers_are_data(parts: Parts) -> None:
    parts.runtime()
    parts.maintenance()
    parts.worker()
    long = comparisons(1)[0] | {"metadata": {"n": "LONG"}}
    body = json.dumps({"kind": "judgement", "judges": [MODEL], "items": [long]}).replace('"LONG"', "9" * 5000)
    job_id = queue_body(parts.engine, parts.tenant(), body.encode(), parts.fleet)
    parts.wait_until_ended(job_id)
    assert check_ended_job(parts.engine, job_id)["succeeded"] == 1
    assert ("9" * 5000) in parts.rows("SELECT input FROM item")[0]["input"]


def test_a_server_that_serves_another_model_is_refused(parts: Parts) -> None:
    parts.runtime()
    worker = parts.worker("other")
    eventually(worker.ended, "the worker gives up")
    assert worker.popen.returncode == 2
    assert "serves tiny" in worker.log.read_text()
