"""One heard comparison, as a report counts it.

Guarantee: pure, and holds no text but names. What was not said or not reached is None.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from services.judging.opinion import Opinion
from services.judging.standing import Standing
from services.judging.weighing import side
from services.reports.settled import Settled, settled
from services.vocabulary import Winner

EVEN = 1e-9  # a mean of votes this near to 1/2 is a tie, but for rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRow(Settled):
    """A verdict, what the item's caller said of it, and the opinions that were formed, one a judge that has one.

    `systems` has an entry for each candidate. With more than two of them, `winner` and `label` are a candidate's index
    or a tie, and a verdict has a `standing`.
    """

    winner: Winner | int | None
    standing: Standing | None
    disagreement: float | None
    label: Winner | int | None
    systems: tuple[str | None, ...]
    opinions: tuple[Opinion, ...]

    @property
    def is_pair(self) -> bool:
        """True for an item with two candidates."""
        return len(self.systems) == 2

    def pairs(self, *, alone: bool) -> Iterator[tuple[int, int, Winner]]:
        """The pairs that have an answer, as (first, second, winner): `A` is the candidate `first`.

        Of more than two candidates the only judge (`alone`) says who wins each pair, unless it grades them one by one:
        its tie margin is in the winner and not in the matrix. Of a panel the matrix tells. Abstentions are no answers.
        """
        own = self.opinions[0].pairs if alone and self.opinions else ()
        if self.standing is not None and own:
            yield from ((pair.first, pair.second, pair.winner) for pair in own if pair.winner is not None)
        elif self.standing is not None:
            for first, second in combinations(range(len(self.systems)), 2):
                p = self.standing.matrix[first][second]
                if p is not None:
                    yield first, second, side(p, EVEN)
        elif isinstance(self.winner, Winner):
            yield 0, 1, self.winner


def item_row(stored: Mapping[Any, Any]) -> ItemRow:
    """A row out of what is stored: the verdict's columns, the item's `facets` and `opinions` (JSON texts)."""
    said = json.loads(stored["facets"])
    standing = Standing.from_json(stored["standing"]) if stored["standing"] else None
    winner = Winner(stored["winner"]) if stored["winner"] and standing is None else None
    return ItemRow(
        **settled(stored, said),
        winner=winner if standing is None else standing.winner,
        standing=standing,
        disagreement=stored["disagreement"],
        label=Winner(said["label"]) if isinstance(said["label"], str) else said["label"],
        systems=tuple(said["systems"]),
        opinions=tuple(Opinion.from_json(json.loads(body)) for body in stored["opinions"]),
    )
