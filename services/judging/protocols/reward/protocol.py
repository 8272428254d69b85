"""How a reward model is asked and read.

Guarantee: what a caller wrote stands in turns of its own roles, untouched; the chat template is the model's own and
does the rest. A score is the very number that the classifier's head gave: nothing is scaled, squashed or clipped.
"""

import math
import re

from services.judging.injection import Detector
from services.judging.protocol import Message, Showing
from services.judging.reading import Reading, VerdictForm
from services.judging.runtime import Sampling
from services.vocabulary import FinishReason, Outcome, Task

# A list of one number in JSON's grammar (RFC 8259), or of the null that stands there for one that is not finite. No
# parser, which would give up on lists in lists and on endless integers; possessive, so that nothing is tried twice.
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_BLANKS = r"[ \t\n\r]*+"
_ONE_NUMBER = re.compile(rf"{_BLANKS}\[{_BLANKS}({_NUMBER}|null){_BLANKS}\]{_BLANKS}")
_DETECTOR = Detector(())


class Reward:
    """The conversation with the candidate as its last turn; the model's head scores it."""

    name = "reward"
    version = "1"
    task = Task.SCORE
    thinks = False
    slots = 1
    grades: tuple[int, int] | None = None
    takes_principle = False
    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=-1, max_tokens=1)  # of no use: nothing is drawn
    verdict: VerdictForm | None = None

    def messages(self, showing: Showing) -> list[Message]:
        """The context's turns, and the candidate as the assistant's."""
        (candidate,) = showing.slots
        return [*showing.context, Message("assistant", candidate)]

    def read(self, completion: str, finish_reason: FinishReason) -> Reading:
        """A JSON list of exactly one finite number."""
        if finish_reason is FinishReason.ABORT:
            return Reading(Outcome.ABORTED, None, "aborted")
        found = _ONE_NUMBER.fullmatch(completion)
        if found is None:
            return Reading(Outcome.UNPARSEABLE, None, "not_one_number")
        score = math.nan if found[1] == "null" else float(found[1])
        if not math.isfinite(score):
            return Reading(Outcome.UNPARSEABLE, None, "not_finite")
        return Reading(Outcome.DECIDED, None, "score", span=found.span(1), scores=(score,))

    def injection_suspected(self, showing: Showing) -> bool:
        """True for the tags of turns and verdicts, and control tokens. There are no markers: no prompt is written."""
        return _DETECTOR.suspects(showing)


PROTOCOL = Reward
