"""Judging on a real SGLang with a small real model: mirrored items, shared prefixes, roles of a family's own."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import embedded
from services.foundation.fleet import FleetModel
from services.jobs.hear import comparison
from services.judging.hearing import Comparison, Hearing, HearingOptions
from services.judging.judge import GREEDY, Judge
from services.judging.opinion import Opinion
from services.judging.runtime import Call, Completion
from services.vocabulary import Mode, Outcome
from tests.invariants import check_ended_job
from tests.parts import Parts
from workers.runtime.client import SGLangRuntime, open_session
from workers.runtime.launch import LaunchedRuntime
from workers.runtime.tokenizer import load_tokenizer, vocabulary_size

EMBEDDED = Path(embedded.__file__).parent
ITEMS = [json.loads(line) for line in (EMBEDDED / "sample.jsonl").read_text(encoding="utf-8").splitlines()]
DIRECT = HearingOptions(mode=Mode.DIRECT)


def judge_of(model: FleetModel, **changes: object) -> Judge:
    entry = model.model_copy(update=changes)
    tokenizer = load_tokenizer(entry.weights, chat_template=entry.chat_template)
    return Judge.of(entry, tokenizer, vocabulary_size(tokenizer, entry.weights))


@asynccontextmanager
async def speaking_to(server: LaunchedRuntime) -> AsyncIterator[SGLangRuntime]:
    async with open_session() as session:
        runtime = SGLangRuntime(session, server.url)
        yield runtime
        await runtime.aclose()


def spoken(server: LaunchedRuntime, talk: Callable[[SGLangRuntime], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with speaking_to(server) as runtime:
            return await talk(runtime)

    return asyncio.run(main())


async def heard(runtime: SGLangRuntime, judge: Judge, item: Comparison, options: HearingOptions) -> Opinion:
    """One hearing, call by call."""
    hearing = Hearing("judge", "item", item, judge.protocol, options)
    while not hearing.ended:
        key = hearing.open_calls()[0]
        (question,) = judge.questions([(hearing, key)], judge.sampling)
        assert question.sampling is not None
        call = Call(f"{id(hearing)}-{key.number}", question.prompt.ids, question.sampling, question.labels)
        hearing.record(key, hearing.read(key, await runtime.complete(call)))
    return hearing.opinion()


def test_exchanging_the_candidates_mirrors_the_opinion(smollm2: FleetModel, smollm2_server: LaunchedRuntime) -> None:
    judge = judge_of(smollm2)

    async def both(runtime: SGLangRuntime) -> list[tuple[Opinion, Opinion]]:
        pairs = []
        for item in ITEMS[:6]:
            given = comparison(item)
            exchanged = Comparison(given.context, given.candidates[::-1])
            pairs.append((await heard(runtime, judge, given, DIRECT), await heard(runtime, judge, exchanged, DIRECT)))
        return pairs

    clear = 0
    for given, exchanged in spoken(smollm2_server, both):
        # the same four prompts; what the cache held of them changes the last digits of a logit
        assert given.p_a is not None
        assert exchanged.p_a == pytest.approx(1 - given.p_a, abs=1e-4)
        if abs(given.p_a - 0.5) > 1e-3:
            clear += 1
            assert exchanged.winner is given.winner.mirrored
        assert (exchanged.calls, exchanged.error) == (2, None)
    assert clear > 0


def test_a_written_answer_at_temperature_zero_mirrors_too(smollm2: FleetModel, smollm2_server: LaunchedRuntime) -> None:
    """The model reasons a few words, greedily, and is made to decide by a forced verdict."""
    judge = judge_of(smollm2, sampling=smollm2.sampling.model_copy(update={"temperature": 0.0, "max_tokens": 24}))

    async def both(runtime: SGLangRuntime) -> tuple[Opinion, Opinion]:
        given = comparison(ITEMS[0])
        exchanged = Comparison(given.context, given.candidates[::-1])
        options = HearingOptions()
        return await heard(runtime, judge, given, options), await heard(runtime, judge, exchanged, options)

    given, exchanged = spoken(smollm2_server, both)
    assert given.error is exchanged.error is None
    assert exchanged.winner is given.winner.mirrored
    assert exchanged.votes[next(iter(exchanged.votes))] == {
        side.mirrored: count for side, count in given.votes[list(given.votes)[1]].items()
    }
    assert (given.valid, given.forced) == (2, 2)


@pytest.mark.slow
def test_first_orders_before_second_ones_share_their_prefixes(
    parts: Parts, smollm2: FleetModel, smollm2_server: LaunchedRuntime
) -> None:
    """Of what a strictly sequential client finds in the prefix cache, a worker with 16 calls at once finds most."""
    judge, some = judge_of(smollm2), ITEMS[:12]

    async def one_by_one(runtime: SGLangRuntime) -> list[Completion]:
        answers = []
        for item in some:
            hearing = Hearing("judge", "item", comparison(item), judge.protocol, DIRECT)
            keys = hearing.open_calls()
            for question in judge.questions([(hearing, key) for key in keys], judge.sampling):
                call = Call(f"alone-{len(answers)}", question.prompt.ids, GREEDY, question.labels)
                answers.append(await runtime.complete(call))
        return answers

    forget(smollm2_server)
    alone = spoken(smollm2_server, one_by_one)
    sequential = sum(answer.cached_tokens for answer in alone) / sum(answer.prompt_tokens for answer in alone)

    forget(smollm2_server)
    parts.fleet_file.write_text(
        f'[models.smollm2]\nprotocol = "sdrm"\nweights = {json.dumps(smollm2.weights)}\ncontext_length = 8192\n'
        f'url = "{smollm2_server.url}"\noptions = {{ mode = "direct" }}\n',
        encoding="utf-8",
    )
    parts.maintenance()
    parts.worker("smollm2")
    job_id = parts.queue(parts.tenant(), some, judges=["smollm2"])
    parts.wait_until_ended(job_id, 600)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["calls"]) == ("completed", 2 * len(some))
    assert job["prompt_tokens"] == sum(answer.prompt_tokens for answer in alone)
    concurrent = job["cached_tokens"] / job["prompt_tokens"]
    print(f"cached: {sequential:.3f} one by one, {concurrent:.3f} by a worker, {concurrent / sequential:.3f} of it")
    assert concurrent / sequential >= 0.85


def test_a_genrm_is_asked_in_roles_that_the_chat_route_refuses(
    smollm2: FleetModel, smollm2_server: LaunchedRuntime
) -> None:
    judge = judge_of(
        smollm2,
        protocol="genrm",
        protocol_options={"principle": True},
        chat_template=EMBEDDED / "sglang_cpu" / "genrm_roles.jinja",
        sampling=smollm2.sampling.model_copy(update={"temperature": 0.0, "max_tokens": 32}),
    )
    options = HearingOptions(principle="Be brief.")

    def opinion(runtime: SGLangRuntime) -> Awaitable[Opinion]:
        return heard(runtime, judge, comparison(ITEMS[0]), options)

    opined = spoken(smollm2_server, opinion)
    # the small model writes no scores: that is told as what it is, and is no tie
    assert (opined.winner, opined.p_a, opined.calls) == (None, None, 2)
    assert set(opined.outcomes) <= {Outcome.TRUNCATED, Outcome.UNPARSEABLE}
    turns = [{"role": role, "content": "x"} for role in ("user", "response_1", "response_2")]
    refused = httpx.post(f"{smollm2_server.url}/v1/chat/completions", json={"model": "smollm2", "messages": turns})
    assert refused.status_code == 400


def forget(server: LaunchedRuntime) -> None:
    """Empty the prefix cache."""
    httpx.post(f"{server.url}/flush_cache", timeout=60).raise_for_status()
