"""SGLang's HTTP as a client needs it. What holds for the real server holds for the scripted one."""

import json
import socket
import threading

import pytest

from tests.contracts.server import CONTEXT, PATIENCE_S, QUEUE, SLOTS, STORY, Server


@pytest.mark.parametrize("path", ["/ready", "/health", "/health_generate"])
def test_it_says_that_it_is_alive(server: Server, path: str) -> None:
    response = server.get(path)
    assert (response.status_code, response.text) == (200, "")


def test_it_says_what_it_is(server: Server) -> None:
    args = server.get("/server_info").json()
    assert args["version"] == "0.5.23"
    assert args["internal_states"][0]["effective_max_running_requests_per_dp"] == SLOTS
    assert args["max_queued_requests"] == QUEUE
    assert args["max_req_input_len"] == CONTEXT - 6
    assert server.get("/get_server_info").json()["version"] == args["version"]
    (model,) = server.get("/v1/models").json()["data"]
    assert model["max_model_len"] == CONTEXT
    for path in ("/model_info", "/get_model_info"):
        assert server.get(path).json()["served_model_name"] == model["id"]


def test_metrics_are_in_prometheus_text_form(server: Server) -> None:
    for _ in range(2):  # the second finds something cached: until then a series is missing
        server.answer([20, 21, 22])
    text = server.get("/metrics").text
    for series in ("num_running_reqs", "num_queue_reqs", "token_usage", "prompt_tokens_total", "cached_tokens_total"):
        assert f"\nsglang:{series}{{" in text


def test_token_ids_are_answered_with_text_ids_and_counts(server: Server) -> None:
    body = server.answer([20, 30, 40, 50], max_new_tokens=3, rid="mine", sampling={"ignore_eos": True})
    meta = body["meta_info"]
    assert meta["id"] == "mine"
    assert meta["finish_reason"] == {"type": "length", "length": 3}
    assert (meta["prompt_tokens"], meta["completion_tokens"], len(body["output_ids"])) == (4, 3, 3)
    assert isinstance(body["text"], str)
    assert meta["e2e_latency"] >= meta["queue_time"] >= 0


def test_a_greedy_call_is_answered_alike_twice(server: Server) -> None:
    first, second = (server.answer([33, 34, 35, 36], max_new_tokens=5) for _ in range(2))
    assert first["output_ids"] == second["output_ids"]


def test_a_prompt_seen_before_is_cached_but_for_its_last_token(server: Server) -> None:
    prompt = [60 + at % 7 for at in range(40)]
    server.post("/flush_cache", {})
    first = server.answer(prompt)["meta_info"]
    second = server.answer(prompt)["meta_info"]
    longer = server.answer([*prompt, 99, 98, 97])["meta_info"]
    assert (first["cached_tokens"], second["cached_tokens"]) == (0, len(prompt) - 1)
    assert longer["cached_tokens"] == len(prompt)
    assert second["cached_tokens_details"] == {"device": len(prompt) - 1, "host": 0}


def test_unknown_fields_are_ignored_but_unknown_sampling_fields_are_refused(server: Server) -> None:
    server.answer([20], foo=1)
    response = server.generate([20], sampling={"foo": 1})
    assert response.status_code == 400
    assert response.json()["error"].startswith("unknown field `foo`, expected one of `max_new_tokens`, `stop`, ")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"sampling_params": {}}, "Either text, input_ids or input_embeds should be provided."),
        ({"input_ids": []}, "input_ids cannot be empty."),
        ({"input_ids": [20], "sampling_params": {"temperature": -1}}, "temperature must be a non-negative finite"),
        ({"input_ids": [20], "sampling_params": {"max_new_tokens": -1}}, "max_new_tokens must be at least 0, got -1."),
        ({"input_ids": [20], "sampling_params": {"regex": "(abc"}}, "Failed to compile regex grammar: "),
        ({"input_ids": [20], "sampling_params": {"regex": "a", "ebnf": "root ::= \"a\""}}, "Only one of json_schema, "),
        ({"input_ids": [20] * 3000}, f"The input (3000 tokens) is longer than the model's context length ({CONTEXT}"),
        ({"input_ids": [20] * (CONTEXT - 6)}, f"Input length ({CONTEXT - 6} tokens) exceeds the maximum allowed"),
        (
            {"input_ids": [20] * 10, "sampling_params": {"max_new_tokens": CONTEXT - 9}},
            f"Requested token count exceeds the model's maximum context length of {CONTEXT} tokens. You requested a "
            f"total of {CONTEXT + 1} tokens: 10 tokens from the input messages and {CONTEXT - 9} tokens for the",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(server: Server, body: dict[str, object], message: str) -> None:
    body.setdefault("sampling_params", {"max_new_tokens": 1})
    response = server.post("/generate", body)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(message)


def test_what_is_not_json_is_refused_in_another_shape(server: Server) -> None:
    response = server.post("/generate", "{not json")
    assert response.status_code == 400
    body = response.json()
    assert (body["object"], body["type"], body["code"]) == ("error", "Bad Request", 400)
    assert body["message"].startswith("1 validation error")


def test_unknown_paths_and_methods_are_refused_in_a_third(server: Server) -> None:
    missing, wrong = server.get("/nope"), server.get("/generate")
    assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})
    assert wrong.status_code == 405
    assert wrong.json() == {"detail": "Method Not Allowed"}


def test_a_regex_of_literal_texts_binds_the_answer(server: Server) -> None:
    body = server.answer([20, 21], max_new_tokens=20, sampling={"regex": "(yes|no\\.)"})
    assert body["text"] in ("yes", "no.")
    assert body["meta_info"]["finish_reason"]["type"] == "stop"


def test_a_stream_is_cumulative_and_ends_with_done(server: Server) -> None:
    response = server.generate([20, 21, 22], max_new_tokens=3, stream=True, sampling={"ignore_eos": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    events = [json.loads(line) for line in lines[:-1]]
    assert events[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 3}
    assert all(event["meta_info"]["finish_reason"] is None for event in events[:-1])
    whole = events[-1]["output_ids"]
    assert len(whole) == 3
    assert all(event["output_ids"] == whole[: len(event["output_ids"])] for event in events)
    assert all(events[-1]["text"].startswith(event["text"].rstrip("\N{REPLACEMENT CHARACTER}")) for event in events)


def test_an_error_of_a_streamed_call_comes_inside_a_good_stream(server: Server) -> None:
    response = server.generate([20] * 3000, stream=True)
    assert response.status_code == 200
    first, last = [line for line in response.text.split("\n\n") if line]
    error = json.loads(first.removeprefix("data: "))["error"]
    assert (error["code"], last) == (400, "data: [DONE]")
    assert error["message"].startswith("The input (3000 tokens) is longer")


def test_an_rid_can_be_in_flight_once(server: Server) -> None:
    with server.telling_stories("twice"):
        response = server.generate([20], rid="twice")
    assert response.status_code == 400
    assert response.json() == {"error": {"message": "Duplicate request ID detected: twice"}}


def test_an_aborted_call_is_answered_with_what_it_has_written(server: Server) -> None:
    with server.telling_stories("story") as answers:
        server.generate([20], max_new_tokens=1)  # the story has started by now
        aborted = server.abort("story")
        server.wait_until_idle()
    assert (aborted.status_code, aborted.text) == (200, "")
    assert answers["story"].status_code == 200
    meta = answers["story"].json()["meta_info"]
    assert meta["finish_reason"]["type"] == "abort"
    assert meta["completion_tokens"] < CONTEXT - 100
    assert meta["completion_tokens"] == len(answers["story"].json()["output_ids"])
    assert meta["prompt_tokens"] > 0


def test_a_call_aborted_in_the_queue_has_no_token_counts(server: Server) -> None:
    with server.telling_stories("one", "two", "queued") as answers:
        assert server.loads() == (SLOTS, 1)
        server.abort("queued")
        server.wait_for(lambda loads: loads == (SLOTS, 0), "the abort")
    body = answers["queued"].json()
    assert body["meta_info"]["finish_reason"] == {"type": "abort", "message": "Abort in waiting queue"}
    assert (body["text"], body["output_ids"]) == ("", [])
    assert "prompt_tokens" not in body["meta_info"]


def test_aborting_what_is_not_there_or_only_begins_alike_does_nothing(server: Server) -> None:
    with server.telling_stories("group-1"):
        for body in ({"rid": "unknown"}, {"rid": "group"}, {}):
            response = server.post("/abort_request", body)
            assert (response.status_code, response.text) == (200, "")
        server.answer([20])
        server.wait_for(lambda loads: loads == (1, 0), "the end of the short call, and of it alone")


def test_a_full_queue_turns_calls_away(server: Server) -> None:
    with server.telling_stories(*(f"story-{at}" for at in range(SLOTS + QUEUE))):
        assert server.loads() == (SLOTS, QUEUE)
        response = server.generate([20])
    assert response.status_code == 503
    assert response.json()["message"] == "The request queue is full."
    assert "retry-after" not in response.headers


def test_a_call_whose_client_leaves_is_given_up(server: Server) -> None:
    body = {"text": STORY, "sampling_params": {"max_new_tokens": CONTEXT - 100, "ignore_eos": True}}
    content = json.dumps(body).encode()
    head = f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
        client.sendall(head.encode() + b"\r\n" + content)
        server.wait_for(lambda loads: loads == (1, 0), "the call")
    server.wait_until_idle()


def test_waiting_calls_are_served_when_a_place_is_free(server: Server) -> None:
    answers = []

    def ask(number: int) -> None:
        answers.append(server.answer([20, number])["meta_info"]["id"])

    # as many as the queue holds: those that run may all still wait when the last of them comes
    threads = [threading.Thread(target=ask, args=(30 + number,)) for number in range(QUEUE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(set(answers)) == QUEUE > SLOTS
