"""What the scripted runtime adds to the contract: repeatable answers, rules, faults, and a log of calls."""

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedded import models
from embedded.places import CHECKOUT
from embedded.processes import Child, spawn
from embedded.scripted.answers import Answerer, UnreadableRegex, literals
from embedded.scripted.command import fault, service_time
from embedded.scripted.prefix import PrefixCache, packed, unpacked
from embedded.scripted.script import Order, Script
from embedded.scripted.vocabulary import Vocabulary
from tests.contracts.server import PATIENCE_S, Server
from workers.runtime.client import LABEL_BIAS

Start = Callable[..., tuple[Server, Child]]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """The tokenizer that the embedded stack gives to the scripted runtime."""
    return Vocabulary(models.make("scripted"))


@pytest.fixture
def start(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Start]:
    """A function that starts a scripted runtime of this test's own."""
    children = []

    def start_one(*arguments: str) -> tuple[Server, Child]:
        port, weights = free_port(), models.make("scripted")
        command = [sys.executable, "-m", "embedded.scripted", "--port", str(port), "--tokenizer", str(weights)]
        child = spawn("scripted", [*command, *arguments], log=tmp_path / "scripted.log", cwd=CHECKOUT)
        children.append(child)
        server = Server(f"http://127.0.0.1:{port}", weights, scripted=True)
        child.wait_until(lambda: listening(server), PATIENCE_S)
        return server, child

    yield start_one
    for child in children:
        child.stop()


def listening(server: Server) -> bool:
    """Whether it answers."""
    try:
        return server.get("/ready").status_code == 200
    except httpx.TransportError:
        return False


def told(server: Server, path: str, body: object) -> None:
    """Give it an order."""
    server.post(path, body).raise_for_status()


def labels_asked(server: Server, prompt: str, first: int, second: int) -> tuple[str, float]:
    """One label call: the text drawn and the log-probability of the first label."""
    bias = {str(first): LABEL_BIAS, str(second): LABEL_BIAS}
    body = server.answer(
        prompt, 1, sampling={"logit_bias": bias}, return_logprob=True, token_ids_logprob=[first, second]
    )
    return body["text"], body["meta_info"]["output_token_ids_logprobs"][0][0][0]


PROMPTS = st.lists(st.integers(0, 200), min_size=1, max_size=30)


@given(prompt=PROMPTS, seed=st.integers(0, 9))
def test_a_free_answer_is_an_analysis_with_the_verdict_that_the_labels_would_give(
    vocabulary: Vocabulary, prompt: list[int], seed: int
) -> None:
    answerer = Answerer(vocabulary, seed, bias=0.0)
    dice = answerer.dice(packed(prompt), {"temperature": 0})
    free = answerer.free(dice, {}, limit=500, p_first=None)
    assert free.finish == {"type": "stop", "matched": vocabulary.end}
    assert vocabulary.decode(free.ids) == free.text
    first, second = vocabulary.encode("A")[-1], vocabulary.encode("B")[-1]
    bound = answerer.drawn(dice, [first, second], limit=1, p_first=None)
    assert free.text.endswith(f"<verdict>{bound.text}</verdict>")
    again = Answerer(vocabulary, seed, bias=0.0)
    assert again.free(again.dice(packed(prompt), {"temperature": 0}), {}, limit=500, p_first=None) == free


@pytest.mark.parametrize("p_first", [0.05, 0.5, 0.8])
def test_a_drawn_verdict_is_the_first_as_often_as_told_and_draws_are_independent(
    vocabulary: Vocabulary, p_first: float
) -> None:
    answerer, script = Answerer(vocabulary, seed=0, bias=0.0), Script()
    script.rules.append(Order.read({"match": "plums", "p_first": p_first, "drawn": True}))
    dice, firsts, uses = answerer.dice(packed([1]), {}), [], 2000
    for _ in range(uses):
        rule = script.rule("Are plums red?")
        assert rule is not None
        answer = answerer.free(dice, {}, limit=500, p_first=p_first, coin=answerer.dice(rule.draw, {}))
        firsts.append(answer.text.endswith("<verdict>A</verdict>"))
    noise = (p_first * (1 - p_first) / uses) ** 0.5
    assert sum(firsts) / uses == pytest.approx(p_first, abs=4 * noise)
    both = sum(one and other for one, other in pairwise(firsts)) / (uses - 1)
    assert both == pytest.approx(p_first**2, abs=6 * noise)


@given(prompt=PROMPTS)
def test_the_first_slots_bias_decides_when_it_is_strong(vocabulary: Vocabulary, prompt: list[int]) -> None:
    answerer = Answerer(vocabulary, seed=0, bias=20.0)
    answer = answerer.bound(answerer.dice(packed(prompt), {}), ["yes", "no"], limit=9, p_first=None)
    assert answer.text == "yes"


@given(prompt=PROMPTS, limit=st.integers(0, 40))
def test_a_limit_cuts_an_answer_and_says_so(vocabulary: Vocabulary, prompt: list[int], limit: int) -> None:
    answerer = Answerer(vocabulary, seed=0, bias=0.0)
    dice = answerer.dice(packed(prompt), {})
    for answer in (
        answerer.free(dice, {"ignore_eos": True}, limit, p_first=None),
        answerer.told("word " * 50, "stop", limit),
    ):
        assert (len(answer.ids), answer.finish) == (limit, {"type": "length", "length": limit})


def test_a_stop_string_ends_an_answer_and_is_left_out(vocabulary: Vocabulary) -> None:
    answerer = Answerer(vocabulary, seed=0, bias=0.0)
    whole = answerer.told("one two three", "stop", limit=50)
    cut = answerer.stopped(whole, ["three", " tw"])
    assert (cut.text, cut.finish) == ("one", {"type": "stop", "matched": " tw"})
    assert " tw" in vocabulary.decode(cut.ids)
    assert " tw" not in vocabulary.decode(cut.ids[:-1])
    assert answerer.stopped(whole, ["four", ""]) == whole


def escaped(text: str) -> str:
    """A text as a regex that matches it alone."""
    return "".join(f"\\{character}" if character in r"\.^$*+?()[]{}|" else character for character in text)


@given(texts=st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4))
def test_an_alternation_of_literals_is_read_back(texts: list[str]) -> None:
    assert literals(f"({'|'.join(map(escaped, texts))})") == texts


@pytest.mark.parametrize("pattern", ["(abc", "[1-6]", "a+", ".", "\\d", "a\\", "(a)(b)", "(a|b)*"])
def test_more_than_an_alternation_of_literals_is_not_guessed_at(pattern: str) -> None:
    with pytest.raises(UnreadableRegex):
        literals(pattern)


TOKENS = st.lists(st.integers(0, 2), max_size=12)


@given(keys=st.lists(TOKENS, max_size=12), asked=TOKENS)
def test_a_match_is_the_longest_common_prefix_with_what_was_inserted(keys: list[list[int]], asked: list[int]) -> None:
    cache = PrefixCache(capacity=1000)
    for key in keys:
        cache.insert(packed(key))
    longest = max((shared(key, asked) for key in keys), default=0)
    assert cache.match(packed(asked)) == longest
    assert unpacked(packed(asked)) == asked


@settings(max_examples=200)
@given(keys=st.lists(TOKENS, max_size=40), capacity=st.integers(1, 20))
def test_the_cache_stays_within_its_capacity_and_claims_nothing_false(keys: list[list[int]], capacity: int) -> None:
    cache = PrefixCache(capacity)
    for at, key in enumerate(keys):
        assert cache.match(packed(key)) <= max((shared(other, key) for other in keys[:at]), default=0)
        cache.insert(packed(key))
        assert cache.size <= capacity


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    cache = PrefixCache(capacity=10)
    old, kept, new = ([number] * 4 for number in (1, 2, 3))
    for key in (old, kept):
        cache.insert(packed(key))
    cache.match(packed(kept))
    cache.insert(packed(new))
    assert [cache.match(packed(key)) for key in (old, kept, new)] == [0, 4, 4]


def shared(one: list[int], other: list[int]) -> int:
    """The length of the common prefix."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_rules_choose_answers_by_prompt_for_as_often_as_they_say(start: Start, vocabulary: Vocabulary) -> None:
    server, _ = start()
    first, second = vocabulary.encode("A")[-1], vocabulary.encode("B")[-1]
    told(
        server,
        "/scripted/script",
        [
            {"match": "apples", "text": "Mine. <verdict>B</verdict>", "times": 1},
            {"match": "apples", "text": "cut", "finish_reason": "length"},
            {"match": "pears", "p_first": 0.2},
            {"match": "plums", "finish_reason": "abort"},
        ],
    )
    once, again = (server.answer("Are apples red?", 100) for _ in range(2))
    assert (once["text"], once["meta_info"]["finish_reason"]["type"]) == ("Mine. <verdict>B</verdict>", "stop")
    assert (again["text"], again["meta_info"]["finish_reason"]["type"]) == ("cut", "length")
    text, logprob = labels_asked(server, "Are pears red?", first, second)
    assert (text, logprob) == ("B", pytest.approx(-1.6094379))
    assert server.answer("Are plums red?", 100)["meta_info"]["finish_reason"]["type"] == "abort"
    assert server.answer("Are cherries red?", 100)["text"].endswith("</verdict>")
    httpx.delete(f"{server.url}/scripted/script").raise_for_status()
    assert server.answer("Are apples red?", 100)["text"] != "cut"


def test_drawn_verdicts_come_in_the_same_sequence_on_each_fresh_server(start: Start) -> None:
    orders = [{"match": fruit, "p_first": 0.6, "drawn": True} for fruit in ("plums", "pears")]

    def drawn(prompts: list[str], *arguments: str) -> dict[str, str]:
        server, child = start(*arguments)
        told(server, "/scripted/script", orders)
        verdicts = {"plums": "", "pears": ""}
        for prompt in prompts:
            fruit = next(fruit for fruit in verdicts if fruit in prompt)
            verdicts[fruit] += server.answer(prompt, 100)["text"].removesuffix("</verdict>")[-1]
        child.stop()
        return verdicts

    plums, pears = [f"Are {number} plums red?" for number in range(12)], ["Are pears red?"] * 12
    in_turn = drawn([*plums, *pears])
    mixed = drawn([prompt for pair in zip(pears, reversed(plums), strict=True) for prompt in pair])
    assert in_turn == mixed
    assert {*in_turn["plums"]} == {*in_turn["pears"]} == {"A", "B"}
    assert in_turn["plums"] != in_turn["pears"]
    assert drawn(pears, "--seed", "1")["pears"] != in_turn["pears"]


@pytest.mark.parametrize(
    ("path", "order"),
    [
        ("/scripted/script", [{"fault": "melt"}]),
        ("/scripted/script", [{"matches": "x"}]),
        ("/scripted/script", [{"p_first": 1}]),
        ("/scripted/script", [{"drawn": True}]),
        ("/scripted/script", [{"used": 3}]),
        ("/scripted/script", [{"finish_reason": "bored"}]),
        ("/scripted/fault", {"match": "x"}),
        ("/scripted/fault", []),
    ],
)
def test_orders_that_make_no_sense_are_refused(scripted_server: Server, path: str, order: object) -> None:
    assert scripted_server.post(path, order).status_code == 400


def test_the_log_tells_what_was_asked_and_answered_and_how_full_it_was(start: Start) -> None:
    server, _ = start("--slots", "2", "--service-time", "lognormal:60,0.1")
    with server.telling_stories("one", "two", "three"):
        pass
    (call, *others) = server.get("/scripted/calls").json()
    assert (call["rid"], call["finish_reason"], len(others)) == ("one", "abort", 2)
    assert call["prompt"] == "Once upon a time"
    assert call["started"] <= call["finished"]
    counters = server.get("/scripted/counters").json()
    assert (counters["requests"], counters["peak_running"], counters["peak_waiting"]) == (3, 2, 1)
    httpx.delete(f"{server.url}/scripted/calls").raise_for_status()
    assert server.get("/scripted/calls").json() == []


def test_a_slow_prefill_keeps_a_call_running_and_ends(start: Start) -> None:
    server, _ = start("--fault", "slow_prefill:1")
    began = time.monotonic()
    assert server.answer("Is it slow?", 100)["meta_info"]["finish_reason"]["type"] == "stop"
    assert time.monotonic() - began >= 1.0


def test_a_hung_runtime_answers_no_health_and_no_abort_but_says_ready(start: Start) -> None:
    server, _ = start("--fault", "hang")
    for path in ("/health", "/generate"):
        with pytest.raises(httpx.ReadTimeout):
            httpx.request("GET" if path == "/health" else "POST", server.url + path, timeout=0.5, json={"text": "x"})
    assert listening(server)


def test_a_runtime_that_refuses_listens_again_later(start: Start) -> None:
    server, _ = start()
    told(server, "/scripted/fault", {"fault": "refuse", "times": 1, "seconds": 0.5})
    with pytest.raises(httpx.TransportError):
        server.generate("Are you there?")
    deadline = time.monotonic() + PATIENCE_S
    while not listening(server):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_classifiers_scores_depend_on_its_seed_and_move_by_its_bias(start: Start) -> None:
    prompts = [[20, 21], [20, 22], [30]]

    def scores(*arguments: str) -> list[float]:
        server, child = start("--is-embedding", *arguments)
        found = [server.score(ids) for ids in prompts]
        child.stop()
        return found

    plain, moved, other = (
        scores("--head-bias", "0"),
        scores("--head-bias", "0.5"),
        scores("--head-bias", "0", "--seed", "1"),
    )
    assert moved == [score + 0.5 for score in plain]
    assert all(one != another for one, another in zip(plain, other, strict=True))


def test_rules_choose_scores_and_times_by_prompt(start: Start) -> None:
    server, _ = start("--is-embedding", "--head-bias", "0.25")
    told(server, "/scripted/script", [{"match": "kind", "score": 2.5}, {"match": "slow", "latency_s": 0.2}])
    kind, slow = (server.post("/classify", {"text": f"Be {how}."}).json() for how in ("kind", "slow"))
    assert kind["embedding"] == [2.75]
    assert slow["meta_info"]["e2e_latency"] >= 0.2
    assert [call["prompt"] for call in server.get("/scripted/calls").json()] == ["Be kind.", "Be slow."]


def test_a_score_that_is_aborted_was_never_given_whether_it_waited_or_ran(start: Start) -> None:
    server, _ = start("--is-embedding", "--slots", "1", "--service-time", "lognormal:60,0.1")
    answers: dict[str, httpx.Response] = {}

    def ask(rid: str) -> None:
        answers[rid] = server.classify([20, 21], rid=rid)

    threads = [threading.Thread(target=ask, args=(rid,)) for rid in ("runs", "waits")]
    for busy, thread in enumerate(threads, start=1):
        thread.start()
        server.wait_for(lambda loads, busy=busy: sum(loads) == busy, "the call")  # type: ignore[misc]
    assert server.classify([20], rid="runs").json()["error"]["message"] == "Duplicate request ID detected: runs"
    for rid in ("waits", "runs"):
        server.abort(rid)
    for thread in threads:
        thread.join(PATIENCE_S)
    for answer in answers.values():
        body = answer.json()
        assert body["meta_info"]["finish_reason"] == {"type": "abort", "message": "Abort in waiting queue"}
        assert "embedding" not in body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/classify", {"input_ids": [999_999]}),
        ("/classify", {"text": ""}),
        ("/generate", {"input_ids": [20], "sampling_params": {"max_new_tokens": 2}}),
    ],
)
def test_what_kills_a_real_classifier_kills_it(start: Start, path: str, body: dict[str, object]) -> None:
    server, child = start("--is-embedding")
    with pytest.raises(httpx.RemoteProtocolError):
        server.post(path, body)
    assert child.popen.wait(PATIENCE_S) == 1


@pytest.mark.parametrize("ids", [[999_999], [-1]])
def test_an_id_out_of_vocabulary_kills_it(start: Start, ids: list[int]) -> None:
    server, child = start()
    with pytest.raises(httpx.RemoteProtocolError):
        server.generate(ids)
    assert child.popen.wait(PATIENCE_S) == 1


def test_service_times_are_lognormal_around_the_median() -> None:
    assert service_time("0")(2.0) == 0.0
    assert service_time("lognormal:3,0.5")(0.0) == 3.0
    assert service_time("lognormal:3,0.5")(2.0) == pytest.approx(3 * 2.718281828)


@pytest.mark.parametrize("text", ["1", "lognormal", "lognormal:0,1", "lognormal:1", "normal:1,1", "lognormal:1,-1"])
def test_other_service_times_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        service_time(text)


def test_a_fault_may_say_for_how_long() -> None:
    order = fault("refuse:2.5")
    assert (order.fault, order.seconds, order.times) == ("refuse", 2.5, None)
    with pytest.raises(argparse.ArgumentTypeError):
        fault("melt")
