"""The client of SGLang: what it sends, how it reads answers and errors, and what it makes of a runtime that breaks."""

import asyncio
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from embedded import models
from embedded.places import CHECKOUT
from embedded.processes import Child, spawn
from services.judging.heard import hear_labels
from services.judging.reading import LabelSet, VerdictForm
from services.judging.registry import protocol
from services.judging.runtime import Call, CallRefused, Completion, Label, RuntimeFault, RuntimeUnavailable, Sampling
from services.vocabulary import FinishReason, Outcome
from workers.runtime.client import (
    SGLangRuntime,
    open_session,
    read_completion,
    read_info,
    read_numbers,
    refusal,
    request_body,
)

SAMPLING = Sampling(temperature=0.7, top_p=0.8, top_k=20, max_tokens=256)
LABELS = (Label("A", 34, "A"), Label("B", 35, "B"))
META = {
    "finish_reason": {"type": "stop", "matched": 2},
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "cached_tokens": 5,
    "queue_time": 0.25,
    "e2e_latency": 1.5,
}


def test_a_free_call_sends_its_sampling_and_always_a_limit() -> None:
    assert json.loads(request_body(Call("r", (1, 2, 3), SAMPLING))) == {
        "rid": "r",
        "input_ids": [1, 2, 3],
        "sampling_params": {"max_new_tokens": 256, "temperature": 0.7, "top_p": 0.8, "top_k": 20},
    }


def test_a_label_call_sends_one_greedy_token_bound_to_the_labels() -> None:
    body = json.loads(request_body(Call("r", [1], SAMPLING, LABELS)))
    assert body["sampling_params"] == {
        "max_new_tokens": 1,
        "temperature": 0.0,
        "logit_bias": {"34": 100.0, "35": 100.0},
    }
    assert (body["return_logprob"], body["token_ids_logprob"]) == (True, [34, 35])


def test_a_call_for_a_classifiers_numbers_sends_the_prompt_alone() -> None:
    assert json.loads(request_body(Call("r", (1, 2, 3), SAMPLING, classifies=True))) == {
        "rid": "r",
        "input_ids": [1, 2, 3],
    }


def test_an_answer_becomes_a_completion() -> None:
    assert read_completion({"text": "so", "output_ids": [1], "meta_info": META}) == Completion(
        text="so",
        finish_reason=FinishReason.STOP,
        prompt_tokens=7,
        cached_tokens=5,
        completion_tokens=3,
        queue_s=0.25,
        latency_s=1.5,
    )


def test_label_logprobs_come_by_name_in_the_calls_order_whatever_the_servers() -> None:
    meta = {**META, "output_token_ids_logprobs": [[[-2.0, 35, None], [-0.25, 34, None]]]}
    assert read_completion({"text": "A", "meta_info": meta}, LABELS).label_logprobs == (("A", -0.25), ("B", -2.0))


@pytest.mark.parametrize("row", [[[None, 34, None], [-1.0, 35, None]], [[float("nan"), 34, None], [-1.0, 35, None]]])
def test_a_logprob_that_is_not_finite_is_that_calls_own_and_no_fault_of_the_runtime(row: list[Any]) -> None:
    completion = read_completion({"text": "A", "meta_info": {**META, "output_token_ids_logprobs": [row]}}, LABELS)
    form = VerdictForm("verdict", LabelSet())
    assert completion.label_logprobs == ()
    assert hear_labels(form, completion).outcome is Outcome.UNPARSEABLE


@pytest.mark.parametrize("row", [[], [[-1.0, 34, None]]])
def test_a_label_without_a_logprob_is_no_answer(row: list[Any]) -> None:
    with pytest.raises(RuntimeUnavailable) as caught:
        read_completion({"text": "A", "meta_info": {**META, "output_token_ids_logprobs": [row]}}, LABELS)
    assert caught.value.code is RuntimeFault.GARBLED


def test_a_call_aborted_in_the_queue_has_neither_counts_nor_logprobs() -> None:
    meta = {"finish_reason": {"type": "abort", "message": "Abort in waiting queue"}, "completion_tokens": 0}
    completion = read_completion({"text": "", "meta_info": meta}, LABELS)
    assert (completion.finish_reason, completion.prompt_tokens, completion.label_logprobs) == ("abort", None, ())


@pytest.mark.parametrize("answer", [{}, {"text": "x"}, {"text": "x", "meta_info": {"finish_reason": {"type": "new"}}}])
def test_an_answer_of_another_shape_is_no_answer(answer: dict[str, Any]) -> None:
    with pytest.raises(RuntimeUnavailable) as caught:
        read_completion(answer)
    assert caught.value.code is RuntimeFault.GARBLED


def classified(embedding: Any, **meta: Any) -> dict[str, Any]:
    """What a classifier answers."""
    own = {"finish_reason": {"type": "length", "length": 0}, "prompt_tokens": 7, "queue_time": 0.0, "e2e_latency": 1.5}
    return {"embedding": embedding, "meta_info": own | meta}


def test_a_classifiers_answer_becomes_a_completion_that_has_written_nothing() -> None:
    assert read_numbers(classified([-0.0123])) == Completion(
        text="[-0.0123]",
        finish_reason=FinishReason.STOP,
        prompt_tokens=7,
        cached_tokens=None,
        completion_tokens=0,
        queue_s=0.0,
        latency_s=1.5,
    )


@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53), min_size=1))
def test_a_classifiers_numbers_are_the_very_ones_that_the_server_gave(numbers: list[float]) -> None:
    text = read_numbers(classified(numbers)).text
    assert json.loads(text) == numbers
    assert list(map(type, json.loads(text))) == list(map(type, numbers))


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([None], "[null]"), ([0.5, None], "[0.5,null]"), ([math.nan], "[null]"), ([-math.inf], "[null]")],
)
def test_a_number_that_is_not_finite_is_that_calls_own_and_no_fault_of_the_runtime(
    numbers: list[float | None], text: str
) -> None:
    assert read_numbers(classified(numbers)).text == text


def test_what_a_classifier_says_of_a_text_that_it_cannot_score_is_unreadable() -> None:
    completion = read_numbers(classified([None]))
    reading = protocol("reward").read(completion.text, completion.finish_reason)
    assert (reading.outcome, reading.rule, reading.scores) == (Outcome.UNPARSEABLE, "not_finite", ())


@pytest.mark.parametrize(
    "answer",
    [
        *map(classified, [None, [], [True], ["0.5"], [[0.5]], [None, [0.5]], [0.5, 1.0], 0.5, "0.5", {"0": 0.5}]),
        {"meta_info": classified([0.5])["meta_info"]},
        {"text": "A", "output_ids": [1], "meta_info": META},
    ],
)
def test_what_is_no_number_is_that_calls_own_and_unreadable(answer: dict[str, Any]) -> None:
    completion = read_numbers(answer)
    reading = protocol("reward").read(completion.text, completion.finish_reason)
    assert (reading.outcome, reading.rule, reading.scores) == (Outcome.UNPARSEABLE, "not_one_number", ())


@pytest.mark.parametrize(
    "answer",
    [
        {"embedding": [0.5]},
        {"embedding": [0.5], "meta_info": {}},
        classified([0.5], finish_reason={"type": "new"}),
    ],
)
def test_what_does_not_tell_how_the_call_ended_is_no_answer_of_a_classifier(answer: dict[str, Any]) -> None:
    with pytest.raises(RuntimeUnavailable) as caught:
        read_numbers(answer)
    assert caught.value.code is RuntimeFault.GARBLED


def test_a_call_of_a_classifier_that_was_aborted_in_the_queue_has_no_numbers() -> None:
    meta = {"finish_reason": {"type": "abort", "message": "Abort in waiting queue"}, "e2e_latency": 0.5}
    completion = read_numbers({"text": "", "output_ids": [], "meta_info": meta})
    assert (completion.text, completion.finish_reason, completion.prompt_tokens) == ("", FinishReason.ABORT, None)


def test_a_servers_info_is_kept_without_its_secrets_and_summed_over_its_ranks() -> None:
    args = {"version": "1", "api_key": "sk", "admin_api_key": "sk", "watermark_key": 7, "ssl_keyfile_password": "p"}
    args |= {"tokenizer_path": "t", "internal_states": [{"effective_max_running_requests_per_dp": 3}] * 2}
    info = read_info(args, {"data": [{"id": "judge", "max_model_len": 4096}]})
    assert (info.max_running_requests, info.context_length, info.served_model) == (6, 4096, "judge")
    assert info.server_args.keys() == {"version", "tokenizer_path", "internal_states"}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, {"object": "error", "message": "flat", "code": 400}, CallRefused("flat")),
        (400, {"error": {"message": "object"}}, CallRefused("object")),
        (400, {"error": "text"}, CallRefused("text")),
        (404, {"detail": "Not Found"}, RuntimeFault.FAILED),
        (401, {"error": "Unauthorized"}, RuntimeFault.FAILED),
        (400, {"error": {"message": "Duplicate request ID detected: r"}}, RuntimeFault.DUPLICATE_RID),
        (503, {"object": "error", "message": "The request queue is full.", "code": 503}, RuntimeFault.OVERLOADED),
        (503, {"detail": "Service Unavailable"}, RuntimeFault.FAILED),
        (500, {"error": {"message": "inside"}}, RuntimeFault.FAILED),
        (502, "<html>Bad Gateway</html>", RuntimeFault.FAILED),
        (
            200,
            'data: {"error": {"message": "full: The request queue is full.", "code": 503}}\n\n',
            RuntimeFault.OVERLOADED,
        ),
        (200, 'data: {"error": {"message": "too long", "code": 400}}\n\ndata: [DONE]\n\n', CallRefused("too long")),
        (200, "data: {broken\n\n", RuntimeFault.GARBLED),
    ],
)
def test_every_shape_of_error_is_told_apart(status: int, body: Any, expected: Any) -> None:
    raw = body if isinstance(body, str) else json.dumps(body)
    error = refusal(status, raw.encode())
    if isinstance(expected, CallRefused):
        assert isinstance(error, CallRefused)
        assert error.message == expected.message
    else:
        assert isinstance(error, RuntimeUnavailable)
        assert error.code is expected


@given(
    status=st.integers(100, 599), raw=st.one_of(st.binary(), st.from_regex(r"data: .*", fullmatch=True).map(str.encode))
)
def test_any_error_body_is_one_of_the_two_errors(status: int, raw: bytes) -> None:
    assert isinstance(refusal(status, raw), CallRefused | RuntimeUnavailable)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "length"]), inner),
)


@given(numbers=JSON, reason=JSON)
def test_any_answer_of_a_classifier_is_read_or_is_no_answer(numbers: Any, reason: Any) -> None:
    try:
        completion = read_numbers({"embedding": numbers, "meta_info": {"finish_reason": reason}})
    except RuntimeUnavailable as error:
        assert error.code is RuntimeFault.GARBLED
    else:
        assert (completion.text == "") == (completion.finish_reason is FinishReason.ABORT)


@given(text=JSON, reason=JSON, row=JSON)
def test_any_answer_is_read_or_is_no_answer(text: Any, reason: Any, row: Any) -> None:
    answer = {"text": text, "meta_info": {"finish_reason": reason, "output_token_ids_logprobs": row}}
    try:
        assert isinstance(read_completion(answer, LABELS).text, str)
    except RuntimeUnavailable as error:
        assert error.code is RuntimeFault.GARBLED


@pytest.fixture
def runtime_url(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[str]:
    """A scripted runtime that nobody else speaks to."""
    child, url = start_scripted(tmp_path, free_port())
    yield url
    child.stop()


@pytest.fixture
def classifier_url(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[str]:
    """A scripted classifier that nobody else speaks to."""
    child, url = start_scripted(tmp_path, free_port(), "--is-embedding")
    yield url
    child.stop()


def start_scripted(folder: Path, port: int, *more: str) -> tuple[Child, str]:
    """Start one and wait until it answers."""
    command = [sys.executable, "-m", "embedded", "scripted", "--port", str(port), *more]
    command += ["--tokenizer", str(models.make("scripted")), "--service-time", "0"]
    child = spawn("scripted", command, log=folder / "scripted.log", cwd=CHECKOUT)
    url = f"http://127.0.0.1:{port}"
    child.wait_until(lambda: answers(url), 60)
    return child, url


def answers(url: str) -> bool:
    """Whether a server is ready."""
    try:
        return httpx.get(url + "/ready", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def called(url: str, *, classifies: bool = False, **options: float) -> Completion:
    """One call through the client."""

    async def play() -> Completion:
        async with open_session() as session:
            runtime = SGLangRuntime(session, url, **options)
            try:
                return await runtime.complete(Call("r", [20, 21], SAMPLING, classifies=classifies))
            finally:
                await runtime.aclose()

    return asyncio.run(asyncio.wait_for(play(), 60))


FAULTS = pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("garbage", RuntimeFault.GARBLED),
        ("half_body", RuntimeFault.UNREACHABLE),
        ("unavailable", RuntimeFault.FAILED),
        ("die", RuntimeFault.UNREACHABLE),
        ("refuse", RuntimeFault.UNREACHABLE),
        ("hang", RuntimeFault.TIMED_OUT),
        ("hang_healthy", RuntimeFault.TIMED_OUT),
    ],
)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ("[NaN]", "[null]"),
        ("[-Infinity]", "[null]"),
        ("[1e999]", "[null]"),
        (f"[NaN,2,{10**30}]", "[null,2,1e+30]"),
    ],
)
def test_what_only_python_takes_for_json_is_that_calls_own(
    free_port: Callable[[], int], numbers: str, text: str
) -> None:
    answer = classified([0.5])
    body = json.dumps(answer).replace("[0.5]", numbers)

    async def classify(_: web.Request) -> web.Response:
        return web.Response(text=body, content_type="application/json")

    async def play() -> Completion:
        application = web.Application()
        application.add_routes([web.post("/classify", classify)])
        runner, port = web.AppRunner(application), free_port()
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            async with open_session() as http:
                return await SGLangRuntime(http, f"http://127.0.0.1:{port}").complete(
                    Call("r", [20], SAMPLING, classifies=True)
                )
        finally:
            await runner.cleanup()

    came = asyncio.run(asyncio.wait_for(play(), 60))
    assert came.text == text
    assert repr(came.prompt_tokens) == repr(answer["meta_info"]["prompt_tokens"])  # a count, also beside a NaN


@FAULTS
def test_a_runtime_that_breaks_is_never_the_calls_fault(runtime_url: str, fault: str, code: RuntimeFault) -> None:
    httpx.post(f"{runtime_url}/scripted/fault", json={"fault": fault}).raise_for_status()
    with pytest.raises(RuntimeUnavailable) as caught:
        called(runtime_url, deadline_s=2.0)
    assert caught.value.code is code


@FAULTS
def test_a_classifier_that_breaks_is_never_the_calls_fault(classifier_url: str, fault: str, code: RuntimeFault) -> None:
    httpx.post(f"{classifier_url}/scripted/fault", json={"fault": fault}).raise_for_status()
    with pytest.raises(RuntimeUnavailable) as caught:
        called(classifier_url, classifies=True, deadline_s=2.0)
    assert caught.value.code is code


@pytest.mark.parametrize("classifies", [False, True])
def test_a_passing_overload_is_waited_out(request: pytest.FixtureRequest, classifies: bool) -> None:
    url: str = request.getfixturevalue("classifier_url" if classifies else "runtime_url")
    httpx.post(f"{url}/scripted/fault", json={"fault": "stream_error", "times": 3}).raise_for_status()
    assert called(url, classifies=classifies).finish_reason is FinishReason.STOP
    assert len(httpx.get(f"{url}/scripted/calls").json()) == 4


def test_nobody_there_is_unreachable(free_port: Callable[[], int]) -> None:
    with pytest.raises(RuntimeUnavailable) as caught:
        called(f"http://127.0.0.1:{free_port()}")
    assert caught.value.code is RuntimeFault.UNREACHABLE
