"""How SDRM-Qwen3-4B-mask70 is asked and read.

Guarantee: the prompt is the published one, line for line; the verdict is read by the shared rules, A or B only.
Source: the model card of opsd-genrm/SDRM-Qwen3-4B-mask70, its line breaks from the model's public training code.
"""

from pathlib import Path

from services.judging.injection import Detector
from services.judging.protocol import Message, Showing
from services.judging.reading import LabelSet, Reading, VerdictForm, read_verdict
from services.judging.runtime import Sampling
from services.judging.template import Template, turns
from services.vocabulary import FinishReason, Task


class Sdrm:
    """One user message without a system prompt; the judge reasons openly and closes with a verdict tag."""

    name = "sdrm"
    version = "1"
    task = Task.JUDGE
    thinks = False
    slots = 2
    grades: tuple[int, int] | None = None
    takes_principle = False
    sampling = Sampling(temperature=0.7, top_p=0.8, top_k=20, max_tokens=8192)
    verdict = VerdictForm("verdict", LabelSet())

    def __init__(self) -> None:
        text = Path(__file__).with_name("prompt.txt").read_text(encoding="utf-8")
        self._template = Template(text, ("context", "response_a", "response_b"))
        self._detector = Detector(self._template.markers)

    def messages(self, showing: Showing) -> list[Message]:
        """The published prompt, filled."""
        first, second = showing.slots
        prompt = self._template.fill(
            {
                "context": turns(showing.context),
                "response_a": turns([Message("assistant", first)]),
                "response_b": turns([Message("assistant", second)]),
            }
        )
        return [Message("user", prompt)]

    def read(self, completion: str, finish_reason: FinishReason) -> Reading:
        """The last valid verdict block."""
        return read_verdict(completion, finish_reason, self.verdict, thinks=self.thinks)

    def injection_suspected(self, showing: Showing) -> bool:
        """True for the prompt's six markers, the tags of turns and verdicts, and control tokens."""
        return self._detector.suspects(showing)


PROTOCOL = Sdrm
