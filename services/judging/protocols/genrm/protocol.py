"""How NVIDIA's GenRM models are asked and read.

Guarantee: what a caller wrote stands in turns of its own roles, untouched; the chat template is the model's own and
does the rest. Sources: the model card of nvidia/Qwen3-Nemotron-235B-A22B-GenRM; NeMo Gym's `genrm_model`, which puts
a turn `principle` right before the responses.
"""

from services.judging.injection import Detector
from services.judging.protocol import Message, Showing
from services.judging.protocols.genrm.reading import GRADES, MARKERS, read_scores
from services.judging.reading import Reading, VerdictForm
from services.judging.runtime import Sampling
from services.vocabulary import FinishReason

_DETECTOR = Detector(MARKERS)


class GenRM:
    """The conversation, then the two responses in roles of their own; the judge thinks, grades both and ranks them."""

    name = "genrm"
    version = "1"
    thinks = True
    slots = 2
    grades: tuple[int, int] | None = (GRADES[0], GRADES[-1])
    sampling = Sampling(temperature=0.6, top_p=0.95, top_k=-1, max_tokens=16384)
    verdict: VerdictForm | None = None

    def __init__(self, principle: bool = False) -> None:
        """`principle`: whether the model's chat template knows a turn `principle`. The first release's does not."""
        self.takes_principle = principle

    def messages(self, showing: Showing) -> list[Message]:
        """The context's turns, the principle where there is one, and the two responses."""
        first, second = showing.slots
        principle = () if showing.principle is None else (Message("principle", showing.principle),)
        return [*showing.context, *principle, Message("response_1", first), Message("response_2", second)]

    def read(self, completion: str, finish_reason: FinishReason) -> Reading:
        """The last scores, as JSON or between markers."""
        return read_scores(completion, finish_reason)

    def injection_suspected(self, showing: Showing) -> bool:
        """True for the answer's eight markers, the tags of turns and verdicts, and control tokens.

        JSON with the answer's keys is an ordinary text: it has no place in which it could pass for the judge's own.
        """
        return _DETECTOR.suspects(showing)


PROTOCOL = GenRM
