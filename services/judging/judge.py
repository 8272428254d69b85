"""A judge: a model of the fleet together with its protocol, able to put its calls into tokens.

Guarantee: a question is sent as it is or not at all: it fits the context with its answer, or it says what forbids it.
Nothing is ever cut off silently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from services.foundation.fleet import FleetModel
from services.judging.proceeding import CallKey, Proceeding
from services.judging.prompt import Opening, Prompt, Renderer, UnsupportedTokenizer
from services.judging.protocol import Family, Message, Showing
from services.judging.reading import VerdictForm, unfinished
from services.judging.registry import protocol
from services.judging.runtime import Call, Label, Sampling
from services.vocabulary import Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=-1, max_tokens=1)
LEAST_TOKENS = 256  # a reasoned answer shorter than this is not worth asking for


@dataclass(frozen=True, slots=True)
class Question:
    """One call in tokens. `sampling` is None for what is not sent: its prompt is refused, or does not fit the model's
    context with its answer.

    `sampling.max_tokens` may be less than was wanted: then it is what the context leaves. With `classifies` nothing is
    drawn and only the prompt must fit.
    """

    prompt: Prompt
    sampling: Sampling | None
    labels: tuple[Label, ...] = ()
    classifies: bool = False


@dataclass(frozen=True, slots=True)
class Judge:
    """A judge of the fleet. `context_length` counts tokens, prompt and answer together.

    `reserve` of them are kept from every written answer, so that a verdict can still be forced behind it.
    """

    name: str
    protocol: Family
    renderer: Renderer
    sampling: Sampling
    context_length: int
    reserve: int

    @classmethod
    def of(cls, model: FleetModel, tokenizer: "PreTrainedTokenizerFast", vocabulary_size: int) -> "Judge":
        """The judge that a fleet entry describes.

        Raises Misconfigured: no such protocol, or a tokenizer that the protocol cannot be asked with.
        """
        family = protocol(model.protocol, model.protocol_options)
        renderer = Renderer(tokenizer, vocabulary_size, generation_prompt=family.task is not Task.SCORE)
        _prove(renderer, family)
        reserve = _reserve(renderer, family.verdict) if family.verdict is not None else 0
        sampling = overridden(family.sampling, model.sampling.model_dump())
        return cls(model.name, family, renderer, sampling, model.context_length, reserve)

    @property
    def classifies(self) -> bool:
        """Whether its runtime is asked for numbers, as a classifier, and writes nothing."""
        return self.protocol.task is Task.SCORE

    def within(self, context_length: int) -> "Judge":
        """The same judge on a server that takes no more than so many tokens."""
        return replace(self, context_length=min(context_length, self.context_length))

    def questions(self, calls: Sequence[tuple[Proceeding, CallKey]], sampling: Sampling) -> list[Question]:
        """The given calls of any proceedings, in tokens, in the same order."""
        showings = [proceeding.showing(key) for proceeding, key in calls]
        distinct = list(dict.fromkeys(showings))  # samples and attempts show the same again
        prompts = dict(zip(distinct, self.renderer.render_many(map(self.protocol.messages, distinct)), strict=True))
        openings: dict[str, Opening] = {}  # in direct mode all calls have the same one
        questions = []
        for showing, (proceeding, key) in zip(showings, calls, strict=True):
            prompt = prompts[showing]
            if prompt.refused is not None:
                questions.append(Question(prompt, None))
                continue
            if self.classifies:
                questions.append(self._scored(prompt, sampling))
                continue
            if not key.forced:
                questions.append(self._free(prompt, sampling))
                continue
            written = proceeding.written_before(key)
            if written not in openings:
                openings[written] = self._opening(written)
            questions.append(self._forced(prompt, written, openings[written]))
        return questions

    def first_call(self, rid: str) -> Call:
        """A call of one token that asks as every other one does, about texts of ours: whether the runtime answers so.

        It also leaves what all of a family's prompts begin with in the runtime's prefix cache, where the first calls of
        a chunk, sent together, would each compute it.
        """
        prompt = self.renderer.render(self.protocol.messages(_probe(self.protocol)))
        return Call(rid, prompt.ids, replace(self.sampling, max_tokens=1), classifies=self.classifies)

    def _scored(self, prompt: Prompt, sampling: Sampling) -> Question:
        fits = len(prompt.ids) < self.context_length
        return Question(prompt, sampling if fits else None, classifies=True)

    def _free(self, prompt: Prompt, sampling: Sampling) -> Question:
        room = self.context_length - len(prompt.ids) - self.reserve
        if room < min(sampling.max_tokens, LEAST_TOKENS):
            return Question(prompt, None)
        return Question(prompt, replace(sampling, max_tokens=min(sampling.max_tokens, room)))

    def _opening(self, written: str) -> Opening:
        assert self.protocol.verdict is not None
        return self.renderer.opening(written, self.protocol.verdict.labels.names)

    def _forced(self, prompt: Prompt, written: str, opening: Opening) -> Question:
        forced = Prompt(prompt.ids + opening.ids, prompt.text + written)
        return Question(forced, GREEDY if len(forced.ids) < self.context_length else None, opening.labels)


def _reserve(renderer: Renderer, form: VerdictForm) -> int:
    """Tokens that forcing a verdict takes: closing an unfinished text, opening the verdict, one label.

    Raises UnsupportedTokenizer where the labels cannot be told apart: a fault of the fleet, found at the start.
    """
    renderer.opening(form.opening, form.labels.names)
    closing = unfinished("", form, thinks=True)  # the longest that there is
    return len(renderer.opening(closing + form.opening, form.labels.names).ids) + 1


def overridden(sampling: Sampling, changes: Mapping[str, Any]) -> Sampling:
    """`sampling` with those of its values replaced that `changes` gives; None leaves a value as it is."""
    return replace(sampling, **{name: value for name, value in changes.items() if value is not None})


def _probe(family: Family) -> Showing:
    principle = "by what is kind" if family.takes_principle else None
    texts = ("the first answer", "the second answer")[: family.slots]
    return Showing((Message("user", "the one question"),), texts, principle)


def _prove(renderer: Renderer, family: Family) -> None:
    """Try whether the model's chat template shows all that the family asks with, in its order.

    Some templates leave out the turns of roles that they do not know, without a word. Raises UnsupportedTokenizer.
    """
    messages = family.messages(_probe(family))
    shown, place = renderer.render(messages).text, 0
    for message in messages:
        found = shown.find(message.content.strip(), place)
        if found < 0:
            raise UnsupportedTokenizer(f"the chat template leaves out the turn of the role {message.role}")
        place = found + len(message.content.strip())
