"""How answers decide between two candidates: values, their means over orders, and when no further answer can matter.

Guarantee: exchanging the candidates exchanges the decision, whatever the family and the options. An order without an
answer decides nothing: it leaves no number behind.

Everything here stands in the pair's frame: a value is 1 for the pair's first candidate and 0 for its second.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from services.judging.heard import Heard
from services.judging.margins import MARGINS
from services.judging.protocol import Family
from services.vocabulary import Decide, OnConflict, Order, Winner

VOTE = {Winner.A: 1.0, Winner.TIE: 0.5, Winner.B: 0.0}
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Answer:
    """What one answered sample says, thrice: its vote, its probability (its vote where it has none), and what counts.

    `value` is the one of these, or the share of a score's margin, that decides.
    """

    vote: float
    soft: float
    value: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What a pair came to. `p` is the mean over orders of the mean over samples of the values that decided.

    `winner` None is an abstention. `consistent`: both orders prefer the same side by their votes; None with one order
    and for pointwise judges.
    """

    winner: Winner | None
    p: float
    consistent: bool | None


@dataclass(frozen=True, slots=True)
class Scales:
    """How a family's answers are put on the scale from 0 to 1.

    `pairwise`: the answers compare two candidates; else each grades one alone. `grades` and `margin` are those of a
    family that gives scores: the difference of two scores, by the named margin, takes its share of the widest possible
    one; a grade alone its share of the grades. So the mean over both orders, or both candidates, is 1/2 plus the mean
    difference over twice the widest one, and above 1/2 exactly when the difference is above 0.
    """

    decide: Decide
    pairwise: bool
    grades: tuple[int, int] | None
    margin: str

    @classmethod
    def of(cls, protocol: Family, decide: Decide, margin: str) -> "Scales":
        """The scales of a family."""
        return cls(decide, protocol.slots == 2, protocol.grades, margin)

    def answer(self, heard: Heard, *, swapped: bool) -> Answer:
        """An answered sample in the pair's frame. `swapped`: what its first slot showed is the pair's second."""
        shown = self._graded(heard) if not self.pairwise else self._compared(heard)
        return Answer(1 - shown.vote, 1 - shown.soft, 1 - shown.value) if swapped else shown

    def _graded(self, heard: Heard) -> Answer:
        assert self.grades is not None
        least, most = self.grades
        hard = (heard.reading.scores[0] - least) / (most - least)
        soft = hard if heard.expected is None else (heard.expected - least) / (most - least)
        return Answer(hard, soft, soft if self.decide is Decide.SOFT else hard)

    def _compared(self, heard: Heard) -> Answer:
        assert heard.reading.winner is not None
        vote = VOTE[heard.reading.winner]
        soft = vote if heard.p_first is None else heard.p_first
        match self.decide:
            case Decide.VOTE:
                return Answer(vote, soft, vote)
            case Decide.SOFT:
                return Answer(vote, soft, soft)
            case Decide.SCORES:
                assert self.grades is not None
                return Answer(vote, soft, MARGINS[self.margin].share(heard.reading, self.grades))

    @property
    def unit(self) -> float:
        """What a difference of 1 is on the scale: of probability, or of score points where scores decide."""
        if self.grades is None or self.decide is Decide.VOTE:
            return 1.0
        if self.pairwise:
            return 1 / (2 * MARGINS[self.margin].greatest(self.grades)) if self.decide is Decide.SCORES else 1.0
        return 1 / (2 * (self.grades[1] - self.grades[0]))


@dataclass(frozen=True, slots=True)
class Rule:
    """How a pair's answers decide. Within `tie_margin` of 1/2, in shares of the scale, the mean is a tie."""

    scales: Scales
    on_conflict: OnConflict
    tie_margin: float

    def decide(self, orders: Mapping[Order, Sequence[Answer]]) -> Decision:
        """What the answers come to; every order has at least one."""
        votes = {side(fmean(answer.vote for answer in answers)) for answers in orders.values()}
        consistent = len(votes) == 1 if len(orders) > 1 and self.scales.pairwise else None
        conflict = self.scales.decide is Decide.VOTE and {Winner.A, Winner.B} <= votes
        if conflict and self.on_conflict is OnConflict.SOFT:
            p = fmean(fmean(answer.soft for answer in answers) for answers in orders.values())
            return Decision(side(p, self.tie_margin), p, consistent)
        p = fmean(fmean(answer.value for answer in answers) for answers in orders.values())
        if conflict:
            return Decision(Winner.TIE if self.on_conflict is OnConflict.TIE else None, p, consistent)
        return Decision(side(p, self.tie_margin), p, consistent)

    def certain(self, orders: Mapping[Order, Sequence[Answer]], left: Mapping[Order, int]) -> bool:
        """Whether no answers to the samples that are `left` of each order could change the winner.

        Between all of an order's rest for one side and all of it for the other the winner moves one way only, so these
        ends tell. (Where a conflict is decided by probabilities it moves another way at the point where an order's
        votes come out even: there is no conflict then.) Samples without an answer stay between them too, once an order
        has an answer.
        """
        if not all(orders.values()):
            return False
        ends = [[[*given, *rest] for rest in self._ends(given, left[order])] for order, given in orders.items()]
        return len({self.decide(dict(zip(orders, end, strict=True))).winner for end in product(*ends)}) == 1

    def _ends(self, given: Sequence[Answer], left: int) -> Iterator[list[Answer]]:
        """What the rest of an order could come to at the utmost."""
        if not left:
            yield []
            return
        if self.scales.decide is not Decide.VOTE or self.on_conflict is not OnConflict.SOFT:
            yield from ([Answer(side, side, side)] * left for side in (0.0, 1.0))
            return
        even = ((len(given) + left) / 2 - sum(answer.vote for answer in given)) / left
        for vote in (0.0, 1.0, even) if 0 <= even <= 1 else (0.0, 1.0):
            # a vote and its probability need not agree
            yield from ([Answer(vote, soft, vote)] * left for soft in (0.0, 1.0))


def side(p: float, margin: float = 0.0) -> Winner:
    """The side that is preferred by p; within `margin` of 1/2 it is a tie."""
    if abs(p - 0.5) <= margin + ROUNDING:
        return Winner.TIE
    return Winner.A if p > 0.5 else Winner.B
