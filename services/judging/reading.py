"""What a protocol makes of one completion, and the rules that families share.

Guarantee: a reading never invents a value. What could not be read is an outcome with a reason, not a number.
"""

from dataclasses import dataclass

from services.vocabulary import Flag, Outcome, Winner


@dataclass(frozen=True, slots=True)
class Seen:
    """A place in a completion that looked like an answer. `span` counts code points, end excluded."""

    text: str
    span: tuple[int, int]
    valid: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """One completion, read. The frame is the judge's: `A` is the first slot.

    `rule` names the rule that decided, `span` where it read (code points in the raw completion), `seen` every other
    candidate answer. `seed_verdict` is what the loose rule published with the model would have said; it never enters an opinion.
    """

    outcome: Outcome
    winner: Winner | None
    rule: str
    flags: frozenset[Flag] = frozenset()
    span: tuple[int, int] | None = None
    seen: tuple[Seen, ...] = ()
    seed_verdict: Winner | None = None
