"""One `/generate` request: checked as SGLang checks it, turned into a flight, answered in its shape.

Guarantee: what SGLang 0.5.23 refuses is refused with the same status and words; what is outside this imitation
(batches, n > 1, schemas, regexes beyond literal alternations) is refused too, never half answered.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from embedded.scripted.answers import SERVICE, Answer, Answerer, Dice, UnreadableRegex, literals
from embedded.scripted.classify import Classifier
from embedded.scripted.engine import Flight
from embedded.scripted.prefix import WIDTH
from embedded.scripted.request import Fatal, Prompts, Refusal, Request, fields_of, rid_of
from embedded.scripted.script import Order, Script
from embedded.scripted.shapes import RESERVED, SAMPLING_FIELDS, error, type_json

NO_PROMPT = "Either text, input_ids or input_embeds should be provided."
DEFAULT_MAX_NEW_TOKENS = 128
CONSTRAINTS = ("json_schema", "regex", "ebnf", "structural_tag")
DECISIVE_BIAS = 50.0  # from here on, other tokens have no chance
FREE_LOGPROB = -0.25  # of every token that was not bound
FREE_MASS = 0.5  # the share of the ids asked about in a token that was not bound to them
IMPOSSIBLE = -3.4028234663852886e38  # what SGLang says of a token that a constraint forbids


class Reader:
    """Checks requests for one model and writes the answers' log-probabilities.

    On a classifier it does as SGLang does: one token is answered with the score, a second one ends the server.
    """

    def __init__(
        self,
        answerer: Answerer,
        classifier: Classifier,
        prompts: Prompts,
        script: Script,
        service: Callable[[float], float],
    ) -> None:
        self.answerer = answerer
        self.classifier = classifier
        self.prompts = prompts
        self.vocabulary = answerer.vocabulary
        self.script = script
        self.service = service

    def check(self, body: object) -> Request:
        """Raises Refusal, Fatal."""
        given = fields_of(body)
        ids = self.prompts.ids(given, NO_PROMPT)
        sampling = given.get("sampling_params") or {}
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
        self._check_length(ids, limit)
        prompt = self.prompts.packed(ids)
        if self.classifier.head_bias is not None and limit > 1:
            raise Fatal("a classifier cannot write a second token")
        return Request(
            rid=rid_of(given),
            prompt=prompt,
            limit=limit,
            sampling=sampling,
            stream=bool(given.get("stream")),
            return_logprob=bool(given.get("return_logprob")),
            top=int(given.get("top_logprobs_num") or 0),
            asked=given.get("token_ids_logprob") or (),
            texts_in_logprobs=bool(given.get("return_text_in_logprobs")),
        )

    def flight(self, request: Request) -> tuple[Flight, Order | None]:
        """What will be answered, and the rule that said so. Raises Refusal for a constraint that is not scripted."""
        if self.classifier.head_bias is not None:
            return self.classifier.flight(request)
        rule = self.script.rule(self.prompts.text(request.prompt)) if self.script.rules else None
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

    def _check_length(self, ids: Sequence[int], limit: int) -> None:
        prompt, context = len(ids), self.prompts.context_length
        if prompt == 0:
            raise Refusal(400, error("input_ids cannot be empty."))
        self.prompts.check_length(ids)
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
