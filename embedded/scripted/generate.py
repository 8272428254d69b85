"""One `/generate` request: checked as SGLang checks it, turned into a flight, answered in its shape.

Guarantee: what SGLang 0.5.23 refuses is refused with the same status and words; what is outside this imitation
(batches, n > 1, schemas, regexes beyond literal alternations) is refused too, never half answered.
"""

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from embedded.scripted.answers import SERVICE, Answer, Answerer, Dice, UnreadableRegex, literals
from embedded.scripted.engine import Flight
from embedded.scripted.prefix import WIDTH, packed, unpacked
from embedded.scripted.script import Order, Script
from embedded.scripted.shapes import RESERVED, SAMPLING_FIELDS, error, flat_error, type_json

DEFAULT_MAX_NEW_TOKENS = 128
CONSTRAINTS = ("json_schema", "regex", "ebnf", "structural_tag")
DECISIVE_BIAS = 50.0  # from here on, other tokens have no chance
FREE_LOGPROB = -0.25  # of every token that was not bound
FREE_MASS = 0.5  # the share of the ids asked about in a token that was not bound to them
IMPOSSIBLE = -3.4028234663852886e38  # what SGLang says of a token that a constraint forbids


class Refusal(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, body: type_json) -> None:
        super().__init__(body)
        self.status = status
        self.body = body


class OutOfVocabulary(Exception):
    """An id that would make a real server's scheduler fail."""


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request."""

    rid: str
    prompt: bytes  # packed: the log keeps thousands of these
    sampling: Mapping[str, Any]
    limit: int
    stream: bool
    return_logprob: bool
    top: int
    asked: Sequence[int]
    texts_in_logprobs: bool


class Reader:
    """Checks requests for one model and writes the answers' log-probabilities."""

    def __init__(
        self, answerer: Answerer, script: Script, context_length: int, service: Callable[[float], float]
    ) -> None:
        self.answerer = answerer
        self.vocabulary = answerer.vocabulary
        self.script = script
        self.context_length = context_length
        self.service = service

    def check(self, body: object) -> Request:
        """Raises Refusal, OutOfVocabulary."""
        if not isinstance(body, Mapping):
            raise Refusal(400, flat_error("1 validation error: the body is not an object", "Bad Request", 400))
        ids = self._ids(body)
        sampling = body.get("sampling_params") or {}
        for name in sampling:
            if name not in SAMPLING_FIELDS:
                expected = ", ".join(f"`{field}`" for field in SAMPLING_FIELDS)
                raise Refusal(400, {"error": f"unknown field `{name}`, expected one of {expected}"})
        if sampling.get("n", 1) != 1:
            raise Refusal(400, error("n other than 1 is not scripted"))
        limit = sampling.get("max_new_tokens", DEFAULT_MAX_NEW_TOKENS)
        if not isinstance(limit, int) or limit < 0:
            raise Refusal(400, error(f"max_new_tokens must be at least 0, got {limit}."))
        temperature = sampling.get("temperature", 1.0)
        if not isinstance(temperature, int | float) or not 0 <= temperature < math.inf:
            raise Refusal(400, error(f"temperature must be a non-negative finite number, got {temperature}."))
        if sum(sampling.get(name) is not None for name in CONSTRAINTS) > 1:
            raise Refusal(400, error("Only one of json_schema, regex, ebnf, or structural_tag can be set."))
        self._check_length(len(ids), limit)
        try:
            prompt = packed(ids)
        except TypeError as fault:
            raise Refusal(400, flat_error(f"1 validation error: input_ids: {fault}", "Bad Request", 400)) from fault
        except OverflowError as fault:  # a negative id
            raise OutOfVocabulary(fault) from fault
        if (highest := int(np.frombuffer(prompt, dtype=np.uintc).max())) >= self.vocabulary.size:
            raise OutOfVocabulary(highest)
        return Request(
            rid=str(body.get("rid") or uuid.uuid4().hex),
            prompt=prompt,
            sampling=sampling,
            limit=limit,
            stream=bool(body.get("stream")),
            return_logprob=bool(body.get("return_logprob")),
            top=int(body.get("top_logprobs_num") or 0),
            asked=body.get("token_ids_logprob") or (),
            texts_in_logprobs=bool(body.get("return_text_in_logprobs")),
        )

    def flight(self, request: Request) -> tuple[Flight, Order | None]:
        """What will be answered, and the rule that said so. Raises Refusal for a constraint that is not scripted."""
        rule = self.script.rule(self.prompt_text(request)) if self.script.rules else None
        dice = self.answerer.dice(request.prompt, request.sampling)
        answer = self._answer(request, dice, rule)
        seconds = self.service(dice.normal(SERVICE))
        flight = Flight(
            rid=request.rid,
            prompt=request.prompt,
            prompt_tokens=len(request.prompt) // WIDTH,
            answer=answer,
            service_s=seconds if rule is None or rule.latency_s is None else rule.latency_s,
            prefill_s=0.0,
        )
        return flight, rule

    def prompt_text(self, request: Request) -> str:
        """The prompt, special tokens included."""
        return self.vocabulary.decode(unpacked(request.prompt), special=True)

    def logprobs(self, request: Request, flight: Flight, ids: Sequence[int]) -> type_json:
        """The log-probability fields of `meta_info` for the ids written so far."""
        if not request.return_logprob:
            return {}
        answer = flight.answer
        bound = dict(zip(answer.tokens, answer.logprobs, strict=True)) if answer.tokens else {}
        own = max(answer.logprobs) if bound else FREE_LOGPROB
        block: type_json = {
            "input_token_logprobs": [],
            "output_token_logprobs": [self._triple(request, own, token) for token in ids],
            "output_token_logprobs_length": len(ids),
        }
        if request.top:
            ranked = sorted(((logprob, token) for token, logprob in bound.items()), reverse=True)
            rows = [(ranked or self._neighbours(own, token, request.top))[: request.top] for token in ids]
            block["input_top_logprobs"] = []
            block["output_top_logprobs"] = [[self._triple(request, *entry) for entry in row] for row in rows]
        if request.asked:
            row = [self._triple(request, logprob, token) for logprob, token in self._asked(request, answer, bound)]
            block["input_token_ids_logprobs"] = []
            block["output_token_ids_logprobs"] = [row for _ in ids]
        return block

    def _ids(self, body: Mapping[str, object]) -> Sequence[int]:
        ids, text = body.get("input_ids"), body.get("text")
        if ids is None and text is None:
            raise Refusal(400, error("Either text, input_ids or input_embeds should be provided."))
        if isinstance(text, str):
            return self.vocabulary.encode(text, special=True)
        if isinstance(ids, list) and (not ids or isinstance(ids[0], int)):
            return ids
        raise Refusal(400, error("batches are not scripted"))

    def _check_length(self, prompt: int, limit: int) -> None:
        context = self.context_length
        if prompt == 0:
            raise Refusal(400, error("input_ids cannot be empty."))
        if prompt >= context:
            message = f"The input ({prompt} tokens) is longer than the model's context length ({context} tokens)."
            raise Refusal(400, error(message))
        if prompt >= (most := context - RESERVED):
            message = (
                f"Input length ({prompt} tokens) exceeds the maximum allowed length ({most} tokens). "
                "Use a shorter input or enable --allow-auto-truncate."
            )
            raise Refusal(400, error(message))
        if prompt + limit > context:
            message = (
                f"Requested token count exceeds the model's maximum context length of {context} tokens. "
                f"You requested a total of {prompt + limit} tokens: {prompt} tokens from the input messages and "
                f"{limit} tokens for the completion. Please reduce the number of tokens in the input messages or the "
                "completion to fit within the limit."
            )
            raise Refusal(400, error(message))

    def _answer(self, request: Request, dice: Dice, rule: Order | None) -> Answer:
        p_first = rule.p_first if rule else None
        sampling = request.sampling
        if bias := sampling.get("logit_bias"):
            tokens = [int(token) for token, added in bias.items() if added >= DECISIVE_BIAS]
            if tokens:
                return self.answerer.drawn(dice, tokens, request.limit, p_first)
        if (pattern := sampling.get("regex")) is not None:
            try:
                texts = literals(str(pattern))
            except UnreadableRegex as fault:
                raise Refusal(400, error(f"Failed to compile regex grammar: {fault}")) from fault
            if [self.vocabulary.piece(token) for token in request.asked] == texts:
                return self.answerer.drawn(dice, request.asked, request.limit, p_first)
            return self.answerer.bound(dice, texts, request.limit, p_first)
        if any(sampling.get(name) is not None for name in CONSTRAINTS):
            raise Refusal(400, error("only regex constraints are scripted"))
        if rule is not None and rule.text is not None:
            answer = self.answerer.told(rule.text, rule.finish_reason, request.limit)
        else:
            coin = self.answerer.dice(rule.draw, {}) if rule is not None and rule.drawn else None
            answer = self.answerer.free(dice, sampling, request.limit, p_first, coin)
        stops = sampling.get("stop") or ()
        return self.answerer.stopped(answer, [stops] if isinstance(stops, str) else list(stops))

    def _asked(self, request: Request, answer: Answer, bound: Mapping[int, float]) -> list[tuple[float, int]]:
        if bound:
            return [(bound.get(token, IMPOSSIBLE), token) for token in request.asked]
        even = [-math.log(len(request.asked))] * len(request.asked)
        shares = answer.logprobs if len(answer.logprobs) == len(request.asked) else even
        return [(share + math.log(FREE_MASS), token) for share, token in zip(shares, request.asked, strict=True)]

    def _neighbours(self, own: float, token: int, count: int) -> list[tuple[float, int]]:
        return [(own - 2.0 * at, (token + at) % self.vocabulary.size) for at in range(count)]

    def _triple(self, request: Request, logprob: float, token: int) -> list[object]:
        return [logprob, token, self.vocabulary.piece(token) if request.texts_in_logprobs else None]
