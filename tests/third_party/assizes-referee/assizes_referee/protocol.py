"""How a referee is asked and read.

Guarantee: the prompts are system.txt and question.txt and nothing else; the choice is read by the shared rules.
"""

from collections.abc import Collection
from pathlib import Path

from services.judging.injection import Detector
from services.judging.protocol import Message, Showing
from services.judging.reading import LabelSet, Reading, VerdictForm, read_verdict
from services.judging.runtime import Sampling
from services.judging.template import Template, turns
from services.vocabulary import FinishReason, Task

PRINCIPLE = "Which answer serves the person who asked better?"


class Referee:
    """A system prompt that holds the principle, one user message; the judge reasons and closes with a choice."""

    name = "referee"
    version = "1"
    task = Task.JUDGE
    thinks = False
    slots = 2
    grades: tuple[int, int] | None = None
    takes_principle = True
    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=-1, max_tokens=1024)
    verdict = VerdictForm("choice", LabelSet("first", "second", tie=True))

    def __init__(self) -> None:
        self._system = _template("system.txt", ("principle",))
        self._question = _template("question.txt", ("context", "first", "second"))
        self._detector = Detector(self._system.markers | self._question.markers, self.verdict.tag)

    def messages(self, showing: Showing) -> list[Message]:
        """Both templates, filled; the turns of the context stand in tags, other texts as they are, stripped."""
        principle = PRINCIPLE if showing.principle is None else showing.principle
        first, second = showing.slots
        texts = {"context": turns(showing.context), "first": first.strip(), "second": second.strip()}
        return [
            Message("system", self._system.fill({"principle": principle.strip()})),
            Message("user", self._question.fill(texts)),
        ]

    def read(self, completion: str, finish_reason: FinishReason) -> Reading:
        """The last valid choice block."""
        return read_verdict(completion, finish_reason, self.verdict, thinks=self.thinks)

    def injection_suspected(self, showing: Showing) -> bool:
        """True for the templates' own markers, the tags of turns and choices, and control tokens."""
        return self._detector.suspects(showing)


def _template(name: str, slots: Collection[str]) -> Template:
    return Template(Path(__file__).with_name(name).read_text(encoding="utf-8"), slots)
