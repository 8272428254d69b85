"""One `/classify` request: checked as SGLang checks it, turned into a flight; the score is a rule's, or drawn.

Guarantee: on one server the same prompt always has the same score, and so it has on every server of the same seed, but
for the bias of its head: SGLang 0.5.23 gives Qwen's classification heads one that their checkpoints lack, random at
each start. Differences between scores can be compared across starts, scores cannot.
"""

from collections.abc import Callable

from embedded.scripted.answers import SERVICE, Answer, Dice
from embedded.scripted.engine import Flight
from embedded.scripted.prefix import WIDTH
from embedded.scripted.request import Fatal, Prompts, Refusal, Request, fields_of, rid_of
from embedded.scripted.script import Order, Script
from embedded.scripted.shapes import error

NO_PROMPT = "At least one of text, input_ids, image, video, or audio should be provided"
NO_CLASSIFIER = (
    "This model does not appear to be an embedding model by default. "
    "Please add `--is-embedding` when launching the server or try another model."
)
SCORE = 2  # which draw it is


class Classifier:
    """Scores prompts; where `head_bias` is None the server is no classifier, and refuses to."""

    def __init__(
        self, prompts: Prompts, script: Script, service: Callable[[float], float], seed: int, head_bias: float | None
    ) -> None:
        self.prompts = prompts
        self.script = script
        self.service = service
        self.seed = seed
        self.head_bias = head_bias

    def check(self, body: object) -> Request:
        """Raises Refusal, Fatal."""
        given = fields_of(body)
        if given.get("text") is not None and given.get("input_ids") is not None:
            raise Refusal(400, error("text and input_ids cannot be provided at the same time"))
        ids = self.prompts.ids(given, NO_PROMPT)
        if given.get("input_ids") == []:
            raise Refusal(500, "Internal Server Error")
        self.prompts.check_length(ids)
        if self.head_bias is None:
            raise Refusal(400, error(NO_CLASSIFIER))
        if not ids:
            raise Fatal("an empty text has no last token to score")
        return Request(rid_of(given), self.prompts.packed(ids))

    def flight(self, request: Request) -> tuple[Flight, Order | None]:
        """What will be answered, and the rule that said so."""
        assert self.head_bias is not None
        rule = self.script.rule(self.prompts.text(request.prompt)) if self.script.rules else None
        dice = Dice(request.prompt, {}, self.seed)
        score = dice.normal(SCORE) if rule is None or rule.score is None else rule.score
        seconds = self.service(dice.normal(SERVICE)) if rule is None or rule.latency_s is None else rule.latency_s
        finish = {"type": "length", "length": request.limit}
        flight = Flight(
            rid=request.rid,
            prompt=request.prompt,
            prompt_tokens=len(request.prompt) // WIDTH,
            answer=Answer([], "", finish, numbers=(score + self.head_bias,)),
            service_s=0.0,
            prefill_s=seconds,
        )
        return flight, rule
