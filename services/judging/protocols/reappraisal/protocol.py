"""How Reappraisal-4B-GRPO-Committee is asked for a reappraisal, and how the one that it writes is read.

Guarantee: system prompt and user turn are the published ones, word for word; the answer is what follows the last
`</think>`, stripped and otherwise as it was written, and passes the gate or says why not.
Sources: the model card of Reappraisal-4B-GRPO-Committee for both texts and the gate; that of Qwen3-4B-Thinking-2507,
from which it was trained, for the sampling.
"""

from pathlib import Path

from pydantic import validate_call

from services.judging.injection import Detector
from services.judging.protocol import Message, Showing
from services.judging.reading import Reading, VerdictForm, answer_start
from services.judging.runtime import Sampling
from services.judging.template import Template
from services.reappraisal.gate import gate
from services.vocabulary import FinishReason, Flag, Outcome, Task


class Reappraisal:
    """A system prompt and the scenario in a user turn; the model thinks, then writes at most two sentences."""

    name = "reappraisal"
    version = "1"
    task = Task.WRITE
    slots = 0
    grades: tuple[int, int] | None = None
    takes_principle = False
    sampling = Sampling(temperature=0.6, top_p=0.95, top_k=20, max_tokens=4096)
    verdict: VerdictForm | None = None

    @validate_call(config={"strict": True})
    def __init__(self, thinks: bool = True) -> None:
        """`thinks`: False for a model whose chat template opens no `<think>`: all that it writes is the answer."""
        self.thinks = thinks
        self._system = _shipped("system.txt")
        self._template = Template(_shipped("scenario.txt"), ("scenario",))
        self._detector = Detector(self._template.markers)

    def messages(self, showing: Showing) -> list[Message]:
        """The system prompt, and the scenario, which is the context's only turn, as the caller wrote it."""
        (scenario,) = showing.context
        return [Message("system", self._system), Message("user", self._template.fill({"scenario": scenario.content}))]

    def read(self, completion: str, finish_reason: FinishReason) -> Reading:
        """The answer and what the gate says of it. One that was cut by length is no answer, however it ends."""
        start = answer_start(completion, thinks=self.thinks)
        thinking = frozenset({Flag.THINK_UNCLOSED}) if start is None else frozenset[Flag]()
        if finish_reason is FinishReason.ABORT:
            return Reading(Outcome.ABORTED, None, "aborted", thinking, sentences=0)
        is_cut = finish_reason is FinishReason.LENGTH
        if start is None:
            unread = Outcome.TRUNCATED if is_cut else Outcome.UNPARSEABLE
            return Reading(unread, None, "thinking_unclosed", thinking, sentences=0)

        answer = completion[start:].strip()
        begin = completion.find(answer, start)
        span = (begin, begin + len(answer)) if answer else None
        gated = gate(answer)
        if is_cut:
            return Reading(Outcome.TRUNCATED, None, "answer_cut", span=span, sentences=gated.sentences)
        return Reading(gated.outcome, None, gated.rule, span=span, sentences=gated.sentences)

    def injection_suspected(self, showing: Showing) -> bool:
        """True for the lines around the scenario, in any case, the tags of turns and verdicts, and control tokens."""
        return self._detector.suspects(showing)


def _shipped(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


PROTOCOL = Reappraisal
