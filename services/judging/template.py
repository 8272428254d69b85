"""Prompt templates with named slots, filled with texts that are never looked at.

Guarantee: a text arrives in the filled prompt exactly as given, whatever braces, markers or directives it holds.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from services.judging.protocol import Message


class Template:
    """A text in which `{name}` marks a slot, for the given names only; other braces stand for themselves."""

    def __init__(self, text: str, slots: Collection[str]) -> None:
        """Raises ValueError when the text lacks a slot."""
        pieces = re.split(r"\{(" + "|".join(map(re.escape, slots)) + r")\}", text)
        self._literals, self._slots = pieces[::2], pieces[1::2]
        if missing := set(slots).difference(self._slots):
            raise ValueError(f"the template has no slot for {', '.join(sorted(missing))}")

    def fill(self, texts: Mapping[str, str]) -> str:
        """The template with every slot replaced, in one pass."""
        filled = self._literals[:1]
        for slot, literal in zip(self._slots, self._literals[1:], strict=True):
            filled += texts[slot], literal
        return "".join(filled)

    @property
    def markers(self) -> frozenset[str]:
        """The lines right before and right after the slots: what a hostile text would forge."""
        before = (literal.rstrip().rpartition("\n")[2] for literal in self._literals[:-1])
        after = (literal.lstrip().partition("\n")[0] for literal in self._literals[1:])
        return frozenset(line.strip() for line in (*before, *after)) - {""}


def turns(messages: Iterable[Message]) -> str:
    """A conversation as text: each turn, stripped, between the tags of its role; a blank line between turns."""
    return "\n\n".join(f"<{turn.role}>\n{turn.content.strip()}\n</{turn.role}>" for turn in messages)
