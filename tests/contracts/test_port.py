"""The Runtime port over SGLang's HTTP: what judging builds on, on both servers."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tokenizers import Tokenizer

from services.judging.runtime import Call, CallRefused, Completion, Label, RuntimeFault, RuntimeUnavailable, Sampling
from services.vocabulary import FinishReason
from tests.contracts.server import CONTEXT, PATIENCE_S, QUEUE, SLOTS, STORY, Server
from workers.runtime.client import SGLangRuntime, open_session

GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=-1, max_tokens=3)
ENDLESS = Sampling(temperature=0.7, top_p=0.8, top_k=20, max_tokens=CONTEXT - 100)


def spoken(server: Server, scene: Callable[[SGLangRuntime], Awaitable[Any]], **options: float) -> Any:
    """What a scene on one event loop returns."""

    async def play() -> Any:
        async with open_session() as session:
            runtime = SGLangRuntime(session, server.url, **options)
            try:
                return await scene(runtime)
            finally:
                await runtime.aclose()

    return asyncio.run(asyncio.wait_for(play(), PATIENCE_S * 2))


def labels_of(server: Server) -> tuple[Label, Label]:
    """` A` and ` B` as this server's tokenizer writes them: one token each, or the bare letters."""
    tokenizer = Tokenizer.from_file(str(server.weights / "tokenizer.json"))
    for texts in ((" A", " B"), ("A", "B")):
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        if all(len(pieces) == 1 for pieces in ids):
            return Label("A", ids[0][0], texts[0]), Label("B", ids[1][0], texts[1])
    raise AssertionError("no label is one token")


def story(server: Server) -> list[int]:
    """The prompt that takes long, as token ids."""
    tokenizer = Tokenizer.from_file(str(server.weights / "tokenizer.json"))
    return list(tokenizer.encode(STORY, add_special_tokens=False).ids)


def test_it_tells_what_it_speaks_to(server: Server) -> None:
    info = spoken(server, lambda runtime: runtime.info())
    assert (info.version, info.max_running_requests, info.context_length) == ("0.5.23", SLOTS, CONTEXT - 6)
    assert info.served_model == server.get("/v1/models").json()["data"][0]["id"]
    assert info.server_args["max_queued_requests"] == QUEUE
    assert not {"api_key", "admin_api_key"} & info.server_args.keys()


def test_it_tells_how_busy_the_server_is(server: Server) -> None:
    with server.telling_stories("one", "two", "three"):
        loads = spoken(server, lambda runtime: runtime.loads())
    assert (loads.running, loads.waiting) == (SLOTS, 1)
    assert 0 <= loads.token_usage <= 1


def test_its_tokens_advance_while_a_call_runs_and_stand_still_when_none_does(server: Server) -> None:
    def tokens() -> float:
        return float(spoken(server, lambda runtime: runtime.tokens()))

    idle = tokens()
    assert tokens() == idle
    with server.telling_stories("long"):
        running = tokens()
        deadline = time.monotonic() + PATIENCE_S
        while tokens() <= running:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert running >= idle


def test_a_call_comes_back_as_a_completion(server: Server) -> None:
    completion = spoken(server, lambda runtime: runtime.complete(Call("c-1", [20, 21, 22, 23], GREEDY)))
    assert completion.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
    assert completion.prompt_tokens == 4
    assert 1 <= completion.completion_tokens <= 3
    assert completion.label_logprobs == ()
    assert completion.latency_s >= completion.queue_s >= 0


def test_a_label_call_draws_one_label_and_weighs_all_of_them(server: Server) -> None:
    labels = labels_of(server)
    completion = spoken(server, lambda runtime: runtime.complete(Call("l-1", [20, 21, 22], GREEDY, labels)))
    logprobs = dict(completion.label_logprobs)
    assert [name for name, _ in completion.label_logprobs] == ["A", "B"]
    assert sum(math.exp(logprob) for logprob in logprobs.values()) == pytest.approx(1.0, abs=1e-4)
    likelier = max(labels, key=lambda label: logprobs[label.name])
    assert completion.text == likelier.text
    assert completion.completion_tokens == 1


def test_a_label_call_weighs_the_labels_as_an_unbound_call_does(server: Server) -> None:
    first, second = labels_of(server)
    bound = spoken(server, lambda runtime: runtime.complete(Call("l-2", [40, 41, 42], GREEDY, (first, second))))
    asked = [first.token_id, second.token_id]
    free = server.answer([40, 41, 42], 1, return_logprob=True, token_ids_logprob=asked)["meta_info"]
    (row,) = free["output_token_ids_logprobs"]
    assert [entry[1] for entry in row] == asked
    odds = dict(bound.label_logprobs)["A"] - dict(bound.label_logprobs)["B"]
    assert odds == pytest.approx(row[0][0] - row[1][0], abs=0.1)  # a cached prefix shifts them a little


def test_label_calls_in_one_batch_with_others_are_weighed_as_alone(server: Server) -> None:
    labels = labels_of(server)
    prompts = [[50 + at, 60, 61 + at] for at in range(4)]

    async def scene(runtime: SGLangRuntime) -> tuple[list[Completion], list[Completion]]:
        alone = [await runtime.complete(Call(f"a-{at}", ids, GREEDY, labels)) for at, ids in enumerate(prompts)]
        bound = [runtime.complete(Call(f"b-{at}", ids, GREEDY, labels)) for at, ids in enumerate(prompts)]
        free = [runtime.complete(Call(f"f-{at}", [70, 71 + at], GREEDY)) for at in range(4)]
        mixed = await asyncio.gather(*(call for pair in zip(bound, free, strict=True) for call in pair))
        return alone, mixed[::2]

    alone, together = spoken(server, scene)
    for one, other in zip(alone, together, strict=True):
        assert dict(one.label_logprobs) == pytest.approx(dict(other.label_logprobs), abs=0.1)


def test_what_the_server_refuses_is_the_calls_own_fault(server: Server) -> None:
    with pytest.raises(CallRefused, match="is longer than the model's context length"):
        spoken(server, lambda runtime: runtime.complete(Call("r-1", [20] * 3000, GREEDY)))


def test_an_rid_in_flight_is_not_the_calls_fault(server: Server) -> None:
    with server.telling_stories("same"), pytest.raises(RuntimeUnavailable) as caught:
        spoken(server, lambda runtime: runtime.complete(Call("same", [20], GREEDY)))
    assert caught.value.code is RuntimeFault.DUPLICATE_RID


def test_a_cancelled_call_is_aborted_on_the_server(server: Server) -> None:
    ids = story(server)

    async def scene(runtime: SGLangRuntime) -> None:
        calls = [asyncio.create_task(runtime.complete(Call(f"x-{at}", ids, ENDLESS))) for at in range(SLOTS + 1)]
        while (await runtime.loads()).waiting < 1:
            await asyncio.sleep(0.05)
        for call in calls:
            call.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*calls, return_exceptions=True)
        )

    spoken(server, scene)
    server.wait_until_idle()


def test_a_call_past_its_deadline_is_aborted_and_reported(server: Server) -> None:
    with server.telling_stories(*(f"story-{at}" for at in range(SLOTS))):  # behind which no call is answered
        with pytest.raises(RuntimeUnavailable) as caught:
            spoken(server, lambda runtime: runtime.complete(Call("d-1", [20], GREEDY)), deadline_s=0.5)
        assert caught.value.code is RuntimeFault.TIMED_OUT
        server.wait_for(lambda loads: loads == (SLOTS, 0), "the abort of the call that waits")


def test_a_call_aborted_by_its_rid_comes_back_as_aborted(server: Server) -> None:
    async def scene(runtime: SGLangRuntime) -> Completion:
        call = asyncio.create_task(runtime.complete(Call("a-1", story(server), ENDLESS)))
        while (await runtime.loads()).running < 1:
            await asyncio.sleep(0.05)
        await runtime.abort("a-1")
        return await call

    assert spoken(server, scene).finish_reason is FinishReason.ABORT


def test_more_calls_than_the_queue_holds_are_all_served_in_the_end(server: Server) -> None:
    async def scene(runtime: SGLangRuntime) -> list[Completion]:
        calls = (Call(f"m-{at}", [20, 21, 30 + at], GREEDY) for at in range(3 * (SLOTS + QUEUE)))
        return await asyncio.gather(*(runtime.complete(call) for call in calls))

    assert len(spoken(server, scene)) == 3 * (SLOTS + QUEUE)


def test_a_queue_that_stays_full_is_waited_for_until_the_calls_deadline(server: Server) -> None:
    with (
        server.telling_stories(*(f"story-{at}" for at in range(SLOTS + QUEUE))),
        pytest.raises(RuntimeUnavailable) as caught,
    ):
        spoken(server, lambda runtime: runtime.complete(Call("late", [20], GREEDY)), deadline_s=0.5)
    assert caught.value.code is RuntimeFault.TIMED_OUT
