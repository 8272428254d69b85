"""The port to a runtime: what judging needs of a server that runs one model, and nothing more.

Guarantee: a call either comes back as a `Completion`, is refused for good (`CallRefused`: the call's own fault), or
raises `RuntimeUnavailable` (the runtime's fault, never charged to an item). `workers/runtime/client.py` speaks SGLang's
HTTP behind this port.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from services.vocabulary import FinishReason


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a runtime draws tokens. `top_k` -1 and `top_p` 1 switch a filter off; temperature 0 is greedy."""

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Label:
    """One answer that a forced verdict may give, as the token that a given tokenizer writes for it.

    `text` is what the token decodes to (for Qwen's tokenizers `>A`, not `A`).
    """

    name: str
    token_id: int
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a runtime.

    `input_ids` are checked against the vocabulary before they come here: an id outside it kills an SGLang server.
    With `labels` exactly one token is drawn, greedily and out of the labels alone, and the log-probabilities of all
    labels come back. With `classifies` nothing is drawn: a classifier's numbers are asked for, `sampling` is not used.
    """

    rid: str
    input_ids: Sequence[int]
    sampling: Sampling
    labels: tuple[Label, ...] = ()
    classifies: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """What a runtime answered. Token counts are None where the server gives none (aborted in its queue).

    `text` is what was written; of a classifier JSON of what the server gave, which should be a list of numbers.
    `label_logprobs`: natural logarithms by label name, in the order of `Call.labels`; empty without labels.
    `queue_s` and `latency_s` are seconds as the runtime measured them, None where it did not.
    """

    text: str
    finish_reason: FinishReason
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    label_logprobs: tuple[tuple[str, float], ...] = ()
    queue_s: float | None = None
    latency_s: float | None = None


class CallRefused(Exception):
    """The runtime refuses this call and would refuse it again (its 400s). `message` is the runtime's own."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RuntimeFault(StrEnum):
    """What kept a runtime from answering: the stable code of a `RuntimeUnavailable`."""

    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    OVERLOADED = "overloaded"
    FAILED = "failed"
    GARBLED = "garbled"
    DUPLICATE_RID = "duplicate_rid"


class RuntimeUnavailable(Exception):
    """The runtime cannot answer now: unreachable, restarting, overloaded, or answering garbage. Retry later."""

    def __init__(self, code: RuntimeFault, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Runtime(Protocol):
    """A server that runs one model."""

    async def complete(self, call: Call) -> Completion:
        """Run one call to its end. Cancelling the awaiting task aborts the call on the runtime by its rid.

        Raises CallRefused, RuntimeUnavailable.
        """
        ...
