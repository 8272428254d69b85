"""Answers beside human labels while items are counted.

Guarantee: pure, independent of the order of the items, and keeps counts alone.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.contract.reports import parts as wire
from services.reports.item import ItemRow
from services.reports.rates import share
from services.stats.agreement import agreement
from services.vocabulary import Winner

Table = NDArray[np.int64]
ANSWERS = (Winner.A, Winner.TIE, Winner.B)  # the rows and columns of every table


def empty_table() -> Table:
    """Counts of two answers, (3, 3), all 0."""
    return np.zeros((len(ANSWERS), len(ANSWERS)), dtype=np.int64)


def agreed(table: Table) -> wire.Agreement:
    """Agreement out of a table of answers by label."""
    return wire.Agreement.model_validate(agreement(table))


@dataclass(slots=True)
class Labelled:
    """Answers on labelled items. `table`: of two candidates, answer by label. Of more, an answer is right or not."""

    table: Table = field(default_factory=empty_table)
    counts: Counter[str] = field(default_factory=Counter)
    labels: Counter[Winner | int] = field(default_factory=Counter)  # of the answered items with more than two

    def add(self, row: ItemRow, winner: Winner | int | None) -> None:
        """Count the answer on an item, None where there is none; an item without a label does not count."""
        if row.label is None:
            return
        self.counts.update(items=1, ranked=not row.is_pair)
        if winner is None:
            return
        if isinstance(winner, Winner) and isinstance(row.label, Winner) and row.is_pair:
            self.table[ANSWERS.index(winner), ANSWERS.index(row.label)] += 1
        else:
            self.counts.update(right=winner == row.label)
            self.labels[row.label] += 1

    @property
    def best(self) -> wire.Accuracy | None:
        """Of the items with more than two candidates and an answer, those where it is right; None without a label."""
        if not self.counts["ranked"]:
            return None
        answered = self.labels.total()
        return wire.Accuracy(
            raw=share(self.counts["right"], answered),
            base=share(max(self.labels.values(), default=0), answered),
        )
