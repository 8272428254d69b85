"""How any instruct model is asked to judge, and how its answer is read: two candidates compared, or one graded.

Guarantee: the prompt is the configured template and nothing else; the answer is read by the shared rules, out of the
configured labels or grades.
"""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from pydantic import validate_call

from services.judging.injection import Detector
from services.judging.protocol import Message, Showing
from services.judging.reading import GradeSet, LabelSet, Reading, VerdictForm, read_verdict
from services.judging.runtime import Sampling
from services.judging.template import Template, turns
from services.vocabulary import FinishReason, Task, Winner


class Prompted:
    """One user message without a system prompt, made from a template; the answer closes with a verdict tag."""

    name = "prompted"
    version = "1"
    task = Task.JUDGE
    thinks = False
    takes_principle = False
    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=-1, max_tokens=2048)

    def __init__(
        self, template: str, responses: tuple[str, ...], verdict: VerdictForm, grades: tuple[int, int] | None = None
    ) -> None:
        """`responses` are the template's slots for the candidates, the first one first; `{context}` is one more.

        The lines next to the slots are the template's markers. Raises ValueError for a template without its slots.
        """
        self.slots = len(responses)
        self.grades = grades
        self.verdict = verdict
        self._responses = responses
        self._template = Template(template, ("context", *responses))
        self._detector = Detector(self._template.markers, verdict.tag)

    def messages(self, showing: Showing) -> list[Message]:
        """The template, filled; the turns of the context stand in tags, the candidates as they are, stripped."""
        candidates = (candidate.strip() for candidate in showing.slots)
        responses = dict(zip(self._responses, candidates, strict=True))
        return [Message("user", self._template.fill({"context": turns(showing.context), **responses}))]

    def read(self, completion: str, finish_reason: FinishReason) -> Reading:
        """The last valid block of the verdict's tag."""
        return read_verdict(completion, finish_reason, self.verdict, thinks=self.thinks)

    def injection_suspected(self, showing: Showing) -> bool:
        """True for the template's own markers, the tags of turns and verdicts, and control tokens."""
        return self._detector.suspects(showing)


@validate_call(config={"strict": True})
def prompted(
    template: str | None = None, labels: Sequence[str] | None = None, grades: int | Sequence[str] | None = None
) -> Prompted:
    """A judge that compares two candidates by `labels`, ("A", "B") by default, or one that gives 1 to `grades`.

    `labels` names the first and the second slot; a third one, "tie", allows ties. `grades` may be words that stand for
    1, 2 and so on, where a template asks for them: of ("no", "yes") "yes" is 2. A template that compares has the slots
    `{context}`, `{response_a}` and `{response_b}`, and may name the labels by `{label_a}`, `{label_b}` and `{choices}`.
    One that grades has `{context}` and `{response}`, and may name the grades by `{least}`, `{most}` and `{choices}`.
    Choose lines next to the slots that no honest text holds: they are the template's markers.

    Raises ValueError for labels together with grades, labels or words that cannot be told apart, grades that are not
    2 to 9, words without a template, and a template without its slots.
    """
    if grades is None:
        return _comparing(template, ("A", "B") if labels is None else labels)
    if labels is not None:
        raise ValueError("labels are for comparing two candidates, grades for grading one: give one of them")
    return _grading(template, grades)


def _comparing(template: str | None, labels: Sequence[str]) -> Prompted:
    labelled = _label_set(labels)
    names = {"label_a": labelled.first, "label_b": labelled.second, "choices": _either(labelled.names)}
    text = _named(_shipped("prompt.txt") if template is None else template, names)
    return Prompted(text, ("response_a", "response_b"), VerdictForm("verdict", labelled))


def _grading(template: str | None, grades: int | Sequence[str]) -> Prompted:
    if template is None and not isinstance(grades, int):
        raise ValueError("grades in words need a template that says what is asked")
    graded = _grade_set(grades)
    names = {"least": graded.names[0], "most": graded.names[-1], "choices": _either(graded.names)}
    text = _named(_shipped("rubric.txt") if template is None else template, names)
    return Prompted(text, ("response",), VerdictForm("score", graded), (1, len(graded.names)))


def _label_set(labels: Sequence[str]) -> LabelSet:
    """The labels, each of which reads as itself; none begins with another, so that each can be forced."""
    if len(labels) == 2 or (len(labels) == 3 and labels[2] == "tie"):
        labelled = LabelSet(labels[0], labels[1], tie=len(labels) == 3)
        answers = [labelled.match(name) for name in labelled.names]
        if answers == [Winner.A, Winner.B, Winner.TIE][: len(labels)] and not _alike(labelled.names):
            return labelled
    raise ValueError(
        "labels are two plain names, neither of which begins with the other, "
        'and "tie" as a third where a tie is an answer'
    )


def _grade_set(grades: int | Sequence[str]) -> GradeSet:
    """The grades, in digits or in words, each of which reads as itself and can be forced."""
    count = grades if isinstance(grades, int) else len(grades)
    if not 2 <= count <= 9:
        raise ValueError("a rubric has 2 to 9 grades")
    numbers = range(1, count + 1)
    graded = GradeSet(tuple(map(str, numbers) if isinstance(grades, int) else grades))
    if list(map(graded.match, graded.names)) != list(numbers) or _alike(graded.names):
        raise ValueError("grades in words are plain ones, none of which begins with another")
    return graded


def _alike(names: Sequence[str]) -> bool:
    """Whether one of the names begins with another, in any case."""
    return any(one.lower().startswith(other.lower()) for one, other in permutations(names, 2))


def _either(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _named(template: str, names: dict[str, str]) -> str:
    for slot, name in names.items():
        template = template.replace(f"{{{slot}}}", name)
    return template


def _shipped(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


PROTOCOL = prompted
