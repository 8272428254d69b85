"""A request and its prompt: token ids, or a text that the vocabulary encodes.

Guarantee: what comes out of here a real server would run; what SGLang 0.5.23 refuses is refused with the same status
and words, and what would kill it is told apart.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from embedded.scripted.prefix import packed, unpacked
from embedded.scripted.shapes import error, flat_error, type_json
from embedded.scripted.vocabulary import Vocabulary


class Refusal(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, body: type_json | str) -> None:
        super().__init__(body)
        self.status = status
        self.body = body


class Fatal(Exception):
    """A request that would make a real server's scheduler fail, and the server with it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request. All but `rid` and `prompt` say how to write an answer, which a classifier does not."""

    rid: str
    prompt: bytes  # packed: the log keeps thousands of these
    limit: int = 0
    sampling: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False
    return_logprob: bool = False
    top: int = 0
    asked: Sequence[int] = ()
    texts_in_logprobs: bool = False


def fields_of(body: object) -> Mapping[str, Any]:
    """What a body holds. Raises Refusal unless it is an object."""
    if not isinstance(body, Mapping):
        raise Refusal(400, flat_error("1 validation error: the body is not an object", "Bad Request", 400))
    return body


def rid_of(body: Mapping[str, object]) -> str:
    """The id that a body gives its request, or a new one."""
    return str(body.get("rid") or uuid.uuid4().hex)


class Prompts:
    """Reads prompts for one model. `context_length` counts tokens."""

    def __init__(self, vocabulary: Vocabulary, context_length: int) -> None:
        self.vocabulary = vocabulary
        self.context_length = context_length

    def ids(self, body: Mapping[str, Any], missing: str) -> Sequence[int]:
        """The token ids that a body gives, perhaps an empty list; where it gives no prompt, `missing` is said.

        Raises Refusal.
        """
        ids, text = body.get("input_ids"), body.get("text")
        if ids is None and text is None:
            raise Refusal(400, error(missing))
        if isinstance(text, str):
            return self.vocabulary.encode(text, special=True)
        if text is not None or (isinstance(ids, list) and ids and isinstance(ids[0], list)):
            raise Refusal(400, error("batches are not scripted"))
        if not isinstance(ids, list):
            message = "1 validation error: input_ids: Input should be a valid list"
            raise Refusal(400, flat_error(message, "Bad Request", 400))
        return ids

    def check_length(self, ids: Sequence[int]) -> None:
        """Raises Refusal for a prompt that fills the context."""
        if len(ids) >= self.context_length:
            message = f"The input ({len(ids)} tokens) is longer than the model's context length "
            raise Refusal(400, error(f"{message}({self.context_length} tokens)."))

    def packed(self, ids: Sequence[int]) -> bytes:
        """The ids of a prompt, at least one, packed. Raises Refusal for what is no id, Fatal for an unknown one."""
        try:
            prompt = packed(ids)
        except TypeError as fault:
            raise Refusal(400, flat_error(f"1 validation error: input_ids: {fault}", "Bad Request", 400)) from fault
        except OverflowError as fault:  # a negative id
            raise Fatal("a token id is out of vocabulary") from fault
        if (highest := int(np.frombuffer(prompt, dtype=np.uintc).max())) >= self.vocabulary.size:
            raise Fatal(f"token id {highest} is out of vocabulary")
        return prompt

    def text(self, prompt: bytes) -> str:
        """A packed prompt as text, special tokens included."""
        return self.vocabulary.decode(unpacked(prompt), special=True)
