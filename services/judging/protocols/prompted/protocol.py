"""How any instruct model is asked to judge a pair, and how its answer is read.

Guarantee: the prompt is the configured template and nothing else; the verdict is read by the shared rules, out of the
configured labels.
"""

from collections.abc import Sequence
from pathlib import Path

from services.judging.injection import Detector
from services.judging.protocol import Message, Pair, VerdictForm
from services.judging.reading import LabelSet, Reading, read_verdict
from services.judging.runtime import Sampling
from services.judging.template import Template, turns
from services.vocabulary import FinishReason


class Prompted:
    """One user message without a system prompt, made from a template; the answer closes with a verdict tag."""

    name = "prompted"
    version = "1"
    thinks = False
    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=-1, max_tokens=2048)

    def __init__(self, template: str | None = None, labels: Sequence[str] = ("A", "B")) -> None:
        """`template` has the slots `{context}`, `{response_a}` and `{response_b}`, and may name the labels by
        `{label_a}`, `{label_b}` and `{choices}`. The lines next to the first three slots are its markers: choose ones
        that no honest text holds. `labels` names the first and the second slot; a third one, "tie", allows ties.

        Raises ValueError for a template without its slots and for labels that are not of this form.
        """
        first, second, *rest = labels if len(labels) >= 2 else ("", "")
        alike = first.lower().startswith(second.lower()) or second.lower().startswith(first.lower())
        if rest not in ([], ["tie"]) or not first.strip() or not second.strip() or alike:
            raise ValueError(
                "labels are two names, neither of which begins with the other, "
                'and "tie" as a third where ties are allowed'
            )
        if template is None:
            template = Path(__file__).with_name("prompt.txt").read_text(encoding="utf-8")
        self.labels = LabelSet(first, second, tie=bool(rest))
        self.verdict: VerdictForm | None = VerdictForm(opening="<verdict>", labels=(first, second))
        choices = f"{first}, {second} or tie" if rest else f"{first} or {second}"
        for slot, name in (("{label_a}", first), ("{label_b}", second), ("{choices}", choices)):
            template = template.replace(slot, name)
        self._template = Template(template, ("context", "response_a", "response_b"))
        self._detector = Detector(self._template.markers)

    def messages(self, pair: Pair) -> list[Message]:
        """The template, filled; the turns of the context stand in tags, the candidates as they are, stripped."""
        prompt = self._template.fill(
            {
                "context": turns(pair.context),
                "response_a": pair.first.strip(),
                "response_b": pair.second.strip(),
            }
        )
        return [Message("user", prompt)]

    def read(self, completion: str, finish_reason: FinishReason) -> Reading:
        """The last valid verdict block."""
        return read_verdict(completion, finish_reason, self.labels, thinks=self.thinks)

    def injection_suspected(self, pair: Pair) -> bool:
        """True for the template's own markers, the tags of turns and verdicts, and control tokens."""
        return self._detector.suspects(pair)


PROTOCOL = Prompted
