"""How NVIDIA's GenRM models are asked and read.

Guarantee: what a caller wrote stands in turns of its own roles, untouched; the chat template is the model's own and
does the rest. Sources: the model cards of nvidia/Qwen3-Nemotron-235B-A22B-GenRM, which compares two responses, and of
nvidia/Llama-3_3-Nemotron-Super-49B-GenRM, which grades a single one too; NeMo Gym's `genrm_model`, which puts a turn
`principle` right before the responses.
"""

from typing import Annotated

from pydantic import Field, validate_call

from services.judging.injection import Detector
from services.judging.protocol import Message, Showing
from services.judging.protocols.genrm.reading import GRADES, MARKERS, read_scores
from services.judging.reading import Reading, VerdictForm
from services.judging.runtime import Sampling
from services.vocabulary import FinishReason, Task

_DETECTOR = Detector(MARKERS)


class GenRM:
    """The conversation, then each response in a role of its own; the judge thinks, grades them and ranks two."""

    name = "genrm"
    version = "1"
    task = Task.JUDGE
    thinks = True
    grades: tuple[int, int] | None = (GRADES[0], GRADES[-1])
    sampling = Sampling(temperature=0.6, top_p=0.95, top_k=-1, max_tokens=16384)
    verdict: VerdictForm | None = None

    @validate_call(config={"strict": True})
    def __init__(self, principle: bool = False, responses: Annotated[int, Field(ge=1, le=2)] = 2) -> None:
        """`responses`: how many one call shows; 2 are graded and ranked, 1 is graded alone.

        `principle`: whether the model's chat template knows a turn `principle`. The first release's does not.
        """
        self.takes_principle = principle
        self.slots = responses

    def messages(self, showing: Showing) -> list[Message]:
        """The context's turns, the principle where there is one, and the responses."""
        principle = () if showing.principle is None else (Message("principle", showing.principle),)
        roles = ("response_1", "response_2")[: self.slots]
        responses = (Message(role, text) for role, text in zip(roles, showing.slots, strict=True))
        return [*showing.context, *principle, *responses]

    def read(self, completion: str, finish_reason: FinishReason) -> Reading:
        """The last scores, as JSON or between markers."""
        return read_scores(completion, finish_reason, self.slots)

    def injection_suspected(self, showing: Showing) -> bool:
        """True for the answer's eight markers, the tags of turns and verdicts, and control tokens.

        JSON with the answer's keys is an ordinary text: it has no place in which it could pass for the judge's own.
        """
        return _DETECTOR.suspects(showing)


PROTOCOL = GenRM
