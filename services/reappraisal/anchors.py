"""The anchors: a fixed set of texts that puts every member of a committee on one scale.

Guarantee: a set holds at least `FEWEST` texts, each a conversation that a user opens and closes with a response to it,
none of them blank. Equal texts in equal order have an equal `sha256`, however their file is laid out.

What a reward model makes of the anchors says where its scores lie and how far apart: a member's score counts in
standard deviations from its mean on these texts. They are not there to be good: they run from kind to off-topic, so
that a member's spread on them is the one between texts that people would tell apart.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from services.foundation.errors import Misconfigured

FEWEST = 32

_SHIPPED = Path(__file__).with_name("anchors.jsonl")


@dataclass(frozen=True, slots=True)
class Anchor:
    """A text to score: a response to a context of (role, content) pairs."""

    context: tuple[tuple[str, str], ...]
    response: str


@dataclass(frozen=True, slots=True)
class AnchorSet:
    """The anchors in the order of their file. `sha256` (hex) names the set: scores of two sets do not compare."""

    texts: tuple[Anchor, ...]
    sha256: str


_Text = Annotated[str, Field(pattern=r"\S")]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["user", "assistant"]
    content: _Text


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    context: list[_Message]
    response: _Text

    @field_validator("context")
    @classmethod
    def _check_turns(cls, context: list[_Message]) -> list[_Message]:
        roles = [message.role for message in context]
        if roles != ["user", *("assistant", "user") * (len(roles) // 2)]:
            raise ValueError("messages alternate, a user's first and last")
        return context


def load_anchors(path: Path | None = None) -> AnchorSet:
    """Read a set from JSON lines of `{"context": [{"role", "content"}, ...], "response"}`; by default the shipped one.

    Raises Misconfigured for a file that cannot be read, a line (from 1) that is wrong, and fewer than `FEWEST` texts.
    """
    source = _SHIPPED if path is None else path
    try:
        content = source.read_bytes()
    except OSError as error:
        raise Misconfigured(f"the anchors {source} cannot be read: {error.strerror}") from error
    lines = [_parse(line, f"{source}, line {n}") for n, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1)]
    if len(lines) < FEWEST:
        raise Misconfigured(f"the anchors {source} are {len(lines)} texts, fewer than {FEWEST}")
    return AnchorSet(texts=tuple(map(_anchor, lines)), sha256=_digest(lines))


def _parse(line: bytes, place: str) -> _Line:
    try:
        return _Line.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = "/".join(map(str, first["loc"])) or "the line"
        raise Misconfigured(f"the anchors {place}: {where}: {first['msg']}") from None


def _anchor(line: _Line) -> Anchor:
    return Anchor(tuple((message.role, message.content) for message in line.context), line.response)


def _digest(lines: Sequence[_Line]) -> str:
    """Over the lines as JSON in one form: keys sorted, no spaces, ASCII only."""
    canonical = (json.dumps(line.model_dump(), sort_keys=True, separators=(",", ":")) for line in lines)
    return sha256("\n".join(canonical).encode()).hexdigest()
