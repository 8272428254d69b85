"""`python -m embedded scripted`: serve a model that answers by rule instead of by weights.

Guarantee: SIGINT and SIGTERM end it at once with status 0; a wrong argument ends it with status 2 before it listens.
"""

import argparse
import asyncio
import json
import math
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from embedded.scripted.answers import Answerer
from embedded.scripted.classify import Classifier
from embedded.scripted.engine import Engine
from embedded.scripted.generate import Reader
from embedded.scripted.prefix import PrefixCache
from embedded.scripted.request import Prompts
from embedded.scripted.script import Fault, Order, Script, Unscriptable
from embedded.scripted.server import ScriptedServer
from embedded.scripted.shapes import Identity
from embedded.scripted.vocabulary import Unusable, Vocabulary

Service = Callable[[float], float]
WIDEST_HEAD_BIAS = 0.125  # torch draws the bias of a linear layer from within 1 / sqrt(inputs), here 64


def service_time(text: str) -> Service:
    """`0`, or `lognormal:MEDIAN,SIGMA` (seconds): from a standard normal number to the seconds a call takes."""
    if text == "0":
        return lambda _normal: 0.0
    kind, _, parameters = text.partition(":")
    try:
        median, sigma = (float(number) for number in parameters.split(","))
    except ValueError:
        kind, median, sigma = "", 0.0, 0.0
    if kind != "lognormal" or median <= 0 or sigma < 0:
        raise argparse.ArgumentTypeError(f"0 or lognormal:MEDIAN,SIGMA, not {text!r}")
    return lambda normal: median * math.exp(sigma * normal)


def fault(text: str) -> Order:
    """`KIND` or `KIND:SECONDS`."""
    kind, _, seconds = text.partition(":")
    try:
        return Order(fault=Fault(kind), seconds=float(seconds or 1.0))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"one of {', '.join(Fault)}, perhaps with :SECONDS, not {text!r}") from error


def rule(text: str) -> Order:
    """A rule as JSON, as `/scripted/script` takes it."""
    try:
        return Order.read(json.loads(text))
    except (json.JSONDecodeError, Unscriptable) as error:
        raise argparse.ArgumentTypeError(f"not a rule: {error}") from error


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m embedded scripted", description="Speak SGLang's HTTP by rule.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a directory with tokenizer.json")
    parser.add_argument("--model", default="scripted", help="the served model's name")
    parser.add_argument("--slots", type=int, default=16, help="calls that run at once")
    parser.add_argument("--max-queued-requests", type=int, help="calls that may wait; without it any number")
    parser.add_argument("--service-time", type=service_time, default="0", help="0 or lognormal:MEDIAN,SIGMA in seconds")
    parser.add_argument("--context-length", type=int, help="by default what config.json says, else 32768")
    parser.add_argument("--max-total-tokens", type=int, default=1 << 20, help="tokens in the prefix cache")
    parser.add_argument("--first-slot-bias", type=float, default=0.0, help="added to the first label's logit")
    parser.add_argument("--is-embedding", action="store_true", help="serve a classifier with one score")
    parser.add_argument("--head-bias", type=float, help="added to its scores; by default drawn anew at each start")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", type=fault, help=f"in force from the start: {', '.join(Fault)}")
    parser.add_argument("--rule", type=rule, action="append", default=[], help="in force from the start, as JSON")
    return parser.parse_args(argv)


def _head_bias(given: argparse.Namespace) -> float | None:
    """The bias of a classifier's head; None for a server that is none."""
    if not given.is_embedding:
        return None
    drawn = random.uniform(-WIDEST_HEAD_BIAS, WIDEST_HEAD_BIAS)  # noqa: S311 - guards nothing
    return drawn if given.head_bias is None else float(given.head_bias)


async def _serve(server: ScriptedServer) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await server.start()
    try:
        await ended.wait()
    finally:
        await server.stop()


def main(argv: list[str]) -> int:
    """Serve until told to stop. Returns the exit status."""
    given = _arguments(argv)
    try:
        vocabulary = Vocabulary(given.tokenizer)
    except Unusable as error:
        print(f"scripted runtime: {error}", file=sys.stderr)
        return 2
    script = Script()
    script.fault = given.fault
    script.rules += given.rule
    config = vocabulary.config
    identity = Identity(
        name=given.model,
        weights=str(given.tokenizer),
        context_length=given.context_length or int(config.get("max_position_embeddings") or 32768),
        model_type=str(config.get("model_type") or "scripted"),
        architectures=[str(name) for name in config.get("architectures") or ["Scripted"]],
        port=given.port,
        max_running=given.slots,
        max_queued=given.max_queued_requests,
        max_total_tokens=given.max_total_tokens,
        start=random.randrange(1 << 30),  # noqa: S311 - guards nothing
        is_embedding=given.is_embedding,
    )
    engine = Engine(given.slots, given.max_queued_requests, PrefixCache(given.max_total_tokens))
    answerer = Answerer(vocabulary, given.seed, given.first_slot_bias)
    prompts = Prompts(vocabulary, identity.context_length)
    classifier = Classifier(prompts, script, given.service_time, given.seed, _head_bias(given))
    reader = Reader(answerer, classifier, prompts, script, given.service_time)
    try:
        asyncio.run(_serve(ScriptedServer(identity, engine, reader)))
    except OSError as error:
        print(f"scripted runtime: {error}", file=sys.stderr)
        return 1
    return 0
