"""The verdict: what the opinions of a panel come to on one item. One judge is a panel of one.

Guarantee: exchanging the candidates exchanges the verdict. Who gave no opinion, or one without an answer, is named and
stands in for nothing; an item fails only when no judge has an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from services.judging.opinion import PRECEDENCE, Opinion
from services.judging.standing import Standing, rank_pairs
from services.judging.weighing import VOTE, side
from services.vocabulary import ItemError, ItemStatus, Winner

MESSAGES = {
    ItemError.RUNTIME_ERROR: "the runtime refused or aborted calls that the answer needs",
    ItemError.CONTEXT_OVERFLOW: "the comparison does not fit the judge's context",
    ItemError.TRUNCATED: "the judge reached its token limit before a verdict",
    ItemError.UNPARSEABLE: "the judge gave no readable verdict",
    ItemError.POISONED: "the item stopped its worker or runtime again and again",
}


@dataclass(frozen=True, slots=True)
class PanelRule:
    """How opinions become a verdict. `majority`: of the judges' winners, a tie counting half to each side; `mean`: of
    how far each prefers a candidate. `weights` by judge, 1 where none is given. Within `tie_margin` of 1/2 is a tie:
    of two candidates, or of each pair of more.
    """

    decide: Literal["majority", "mean"] = "majority"
    weights: Mapping[str, float] = field(default_factory=dict)
    tie_margin: float = 0.0

    def weight(self, opinion: Opinion) -> float:
        """How much an opinion counts."""
        return self.weights.get(opinion.judge, 1.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A panel's answer on one item.

    `winner` is None for an abstention and, with `error`, when there is no answer. Of two candidates `p_a` is the
    weighted mean of the opinions', `consistent` whether each of them is (None where none can tell); more have a
    `standing`. `missing` are the judges of the panel that gave no opinion. `disagreement`: the chance that two judges
    drawn by weight differ in their winner; None with fewer than two that answered.
    """

    winner: Winner | None
    p_a: float | None
    consistent: bool | None
    error: ItemError | None
    opinions: tuple[Opinion, ...]
    standing: Standing | None = None
    missing: tuple[str, ...] = ()
    disagreement: float | None = None

    @property
    def status(self) -> ItemStatus:
        """A winner, a tie and an abstention are answers; an error is none."""
        return ItemStatus.FAILED if self.error else ItemStatus.SUCCEEDED

    @property
    def message(self) -> str | None:
        """The error as a sentence."""
        return MESSAGES[self.error] if self.error else None


def single(opinion: Opinion) -> Verdict:
    """The verdict of a panel of one: its opinion."""
    return Verdict(
        opinion.winner, opinion.p_a, opinion.consistent, opinion.error, (opinion,), standing=opinion.standing
    )


def join(opinions: Sequence[Opinion], rule: PanelRule, missing: Sequence[str] = ()) -> Verdict:
    """The verdict of several judges on one item: at least one opinion, those without an answer among them."""
    answered = [opinion for opinion in opinions if opinion.error is None]
    if not answered:
        given = {opinion.error for opinion in opinions}
        error = next(error for error, _ in PRECEDENCE if error in given)
        return Verdict(None, None, None, error, tuple(opinions), missing=tuple(missing))
    ranked = [opinion.standing for opinion in answered if opinion.standing is not None]
    if ranked:
        standing = _joined_standing([opinion for opinion in answered if opinion.standing], rule, len(ranked[0].ranks))
        winner, p_a, consistent = None, None, None
    else:
        standing = None
        winner, p_a = _pair(answered, rule)
        told = [opinion.consistent for opinion in answered if opinion.consistent is not None]
        consistent = all(told) if told else None
    return Verdict(
        winner,
        p_a,
        consistent,
        None,
        tuple(opinions),
        standing,
        tuple(missing),
        _disagreement(answered, rule),
    )


def _pair(opinions: Sequence[Opinion], rule: PanelRule) -> tuple[Winner | None, float | None]:
    shares = [(opinion.p_a, rule.weight(opinion)) for opinion in opinions if opinion.p_a is not None]
    if not shares:
        return None, None  # more than two candidates, and every judge abstained
    p_a = _mean(shares)
    if rule.decide == "mean":
        return side(p_a, rule.tie_margin), p_a
    votes = [(VOTE[opinion.winner], rule.weight(opinion)) for opinion in opinions if opinion.winner is not None]
    return (side(_mean(votes), rule.tie_margin) if votes else None), p_a


def _joined_standing(opinions: Sequence[Opinion], rule: PanelRule, candidates: int) -> Standing | None:
    """Where the candidates stand by all judges' pairs. One judge's standing ties them all together, so theirs do."""
    pairs = []
    for first, second in combinations(range(candidates), 2):
        shares = []
        for opinion in opinions:
            assert opinion.standing is not None
            share = opinion.standing.matrix[first][second]
            if share is not None:
                shares.append((VOTE[side(share)] if rule.decide == "majority" else share, rule.weight(opinion)))
        if shares:
            p = _mean(shares)
            even = side(p, rule.tie_margin) is Winner.TIE
            pairs.append((first, second, 0.5 if even else p, sum(weight for _, weight in shares)))
    return rank_pairs(pairs, candidates)


def _mean(values: Sequence[tuple[float, float]]) -> float:
    return sum(value * weight for value, weight in values) / sum(weight for _, weight in values)


def _disagreement(opinions: Sequence[Opinion], rule: PanelRule) -> float | None:
    pairs = [
        (_winner(one) != _winner(other), rule.weight(one) * rule.weight(other))
        for one, other in combinations(opinions, 2)
    ]
    return _mean([(float(differs), weight) for differs, weight in pairs]) if pairs else None


def _winner(opinion: Opinion) -> Winner | int | None:
    return opinion.winner if opinion.standing is None else opinion.standing.winner
