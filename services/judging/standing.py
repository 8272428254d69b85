"""How more than two candidates stand to each other: from the answers on their pairs, or from their grades.

Guarantee: renumbering the candidates renumbers everything. A pair without an answer, or with an abstention, is left out
and shows as null; where the answers left do not tie all candidates together there is no standing at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.judging.pairings import connected
from services.judging.policies import Policy
from services.vocabulary import ItemError, Order, Winner

EQUAL = 1e-9  # what is nearer than this is rounding

Matrix = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Strength:
    """A Bradley-Terry log-strength with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Pairwise:
    """The answer on one of several pairs; `A` is the candidate `first`.

    `p`: how far `first` is preferred, None with `error`. `winner` None without `error` is an abstention. `votes` counts
    the valid answers by order.
    """

    first: int
    second: int
    winner: Winner | None
    p: float | None
    consistent: bool | None
    error: ItemError | None
    votes: Mapping[Order, Mapping[Winner, int]]

    @property
    def share(self) -> float | None:
        """How far the first is preferred, as it enters a standing: a tie counts as even, however it came about.

        None for an abstention and where there was no answer: such a pair says nothing.
        """
        return 0.5 if self.winner is Winner.TIE else self.p if self.winner is not None else None

    @property
    def answers(self) -> int:
        """How many valid answers it rests on."""
        return sum(sum(counts.values()) for counts in self.votes.values())

    def as_json(self) -> dict[str, Any]:
        """The answer as it stands in results."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Pairwise":
        """The answer that `as_json` wrote."""
        return cls(
            **dict(body)
            | {
                "winner": Winner(body["winner"]) if body["winner"] else None,
                "error": ItemError(body["error"]) if body["error"] else None,
                "votes": votes_of(body["votes"]),
            }
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """Where n candidates stand.

    `winner` is the best one's index, or "tie" when several are best. `ranking` lists the indices, the best first, equal
    ones in their own order; `ranks` gives each candidate its rank: 1, and one more for each that is better. `scores` is
    each one's mean over its opponents of `matrix`, which holds how far the row is preferred to the column, from 0 to 1.
    `strengths` are Bradley-Terry log-strengths with 95 % intervals; None where candidates were graded. `separated`:
    some candidates beat the others without exception, so that only a small prior keeps their strengths finite.
    `adjusted` are the grades, or where there are none the scores, as score policies have changed them: then the ranks
    follow these. None without policies.
    """

    winner: int | Winner
    ranking: tuple[int, ...]
    ranks: tuple[int, ...]
    scores: tuple[float, ...]
    matrix: Matrix
    strengths: tuple[Strength, ...] | None
    separated: bool
    adjusted: tuple[float, ...] | None = None

    def adjusted_by(
        self,
        policies: Sequence[Policy],
        texts: Sequence[str],
        grades: Sequence[float | None] | None,
        tie_margin: float = 0.0,
    ) -> "Standing":
        """The standing by the candidates' adjusted grades; by their adjusted scores where they have no grades.

        Of two that are no further apart than `tie_margin` none is better.
        """
        known = [grade for grade in grades or () if grade is not None]
        values = np.array(known if len(known) == len(self.scores) else self.scores, dtype=np.float64)
        for policy in policies:
            values = policy.adjust(values, texts)
        ranks = _ranks(values[:, None] - values[None, :], tie_margin)
        return replace(self, **_places(ranks), adjusted=tuple(map(float, values)))

    def as_json(self) -> dict[str, Any]:
        """The standing as it stands in results."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Standing":
        """The standing that `as_json` wrote."""
        strengths = body["strengths"]
        return cls(
            winner=Winner(body["winner"]) if isinstance(body["winner"], str) else body["winner"],
            ranking=tuple(body["ranking"]),
            ranks=tuple(body["ranks"]),
            scores=tuple(body["scores"]),
            matrix=tuple(map(tuple, body["matrix"])),
            strengths=None if strengths is None else tuple(Strength(**strength) for strength in strengths),
            separated=body["separated"],
            adjusted=None if body["adjusted"] is None else tuple(body["adjusted"]),
        )


def votes_of(body: Mapping[str, Mapping[str, int]]) -> dict[Order, dict[Winner, int]]:
    """Counts of votes by order, out of their JSON."""
    return {Order(order): {Winner(side): count for side, count in sides.items()} for order, sides in body.items()}


def rank_pairs(pairs: Sequence[tuple[int, int, float, float]], candidates: int) -> Standing | None:
    """The standing out of pairs as (first, second, p, weight): `first` is preferred by p, on so much evidence.

    Pairs may repeat, as they do in a circle of two or with several judges. None when they do not tie all together.
    """
    from services.stats.ranking import rank  # noqa: PLC0415 - scipy adds half a second to the start of each worker

    if not connected([(first, second) for first, second, _, _ in pairs], candidates):
        return None
    wins = np.zeros((candidates, candidates))
    for first, second, p, weight in pairs:
        wins[first, second] += p * weight
        wins[second, first] += (1 - p) * weight
    ranked = rank(wins)
    played = wins + wins.T
    share = np.divide(wins, played, out=np.full_like(wins, np.nan), where=played > 0)
    strengths = [
        Strength(float(value), float(low), float(high))
        for value, low, high in zip(ranked.strengths, ranked.low, ranked.high, strict=True)
    ]
    return _standing(ranked.ranks, ranked.scores, share, strengths, separated=ranked.separated)


def rank_grades(grades: Sequence[float], least: int, most: int, tie_margin: float = 0.0) -> Standing:
    """The standing out of each candidate's grade: preferred by 1/2 plus half the difference's share of the widest.

    Two are even within `tie_margin` of 1/2, as where a pair alone is graded: then none of them is better.
    """
    values = np.asarray(grades)
    ahead = (values[:, None] - values[None, :]) / (2 * (most - least))
    share = 0.5 + np.where(np.abs(ahead) <= tie_margin + EQUAL, 0, ahead)
    np.fill_diagonal(share, np.nan)
    scores = np.nanmean(share, axis=1)
    return _standing(_ranks(ahead, tie_margin), scores, share, None, separated=False)


def _standing(
    ranks: NDArray[np.int64],
    scores: NDArray[np.float64],
    share: NDArray[np.float64],
    strengths: Sequence[Strength] | None,
    *,
    separated: bool,
) -> Standing:
    return Standing(
        **_places(ranks),
        scores=tuple(map(float, scores)),
        matrix=tuple(tuple(None if np.isnan(p) else float(p) for p in row) for row in share),
        strengths=None if strengths is None else tuple(strengths),
        separated=separated,
    )


def _ranks(ahead: NDArray[np.float64], tie_margin: float) -> NDArray[np.int64]:
    """One more than how many are better, by how far each row's candidate is ahead of each column's."""
    return np.asarray(1 + np.count_nonzero(ahead > tie_margin + EQUAL, axis=0), dtype=np.int64)


def _places(ranks: NDArray[np.int64]) -> dict[str, Any]:
    """What follows from the ranks alone, by the fields of a standing."""
    best = np.flatnonzero(ranks == 1)
    return {
        "winner": int(best[0]) if len(best) == 1 else Winner.TIE,
        "ranking": tuple(map(int, np.argsort(ranks, kind="stable"))),
        "ranks": tuple(map(int, ranks)),
    }
