"""How two scores and a ranking become one number: by how much the first slot is preferred.

Guarantee: pure, in the shown frame. Exchanging the slots (the scores exchanged, a ranking r turned to 7 - r, -1 kept)
gives exactly the opposite margin. Rankings count from 1, the first slot much better, to 6, the second much better; 3.5
is neutral, -1 says that both are bad.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from services.judging.reading import Reading

NEUTRAL = 3.5
BOTH_BAD = -1


def blended(reading: Reading) -> float:
    """(score_1 - score_2) + (3.5 - ranking) / 5; without a ranking the difference alone; 0 where both are bad.

    In score points: for grades from 1 to 5 within -4.5 to 4.5. The ranking moves it by half a point at most, so that it
    decides between equal scores only: the sign is always the reading's winner. `reading` is an answer with two scores.
    """
    first, second = reading.scores
    if reading.ranking == BOTH_BAD:
        return 0.0
    lean = 0.0 if reading.ranking is None else (NEUTRAL - reading.ranking) / 5
    return first - second + lean


def nvidia(reading: Reading) -> float:
    """score_1 - score_2, equal scores first moved apart by the ranking: + (3.5 - ranking) and - (3.5 - ranking).

    Source: `simple_tiebreaker` in NeMo Gym's `genrm_compare`. For grades from 1 to 5 within -5 to 5. Not monotonic:
    scores 3 and 3 with ranking 1 give 5, scores 4 and 3 with the same ranking 1, though the latter say more for the
    first slot. Rankings that the source does not know, none and -1, move nothing apart; -1 gives 0 as everywhere.
    """
    first, second = reading.scores
    if reading.ranking == BOTH_BAD:
        return 0.0
    if first == second and reading.ranking is not None:
        return 2 * (NEUTRAL - reading.ranking)
    return float(first - second)


@dataclass(frozen=True, slots=True)
class Margin:
    """A way to compare two scores. `greatest`: the most that `of` gives, for a family's least and greatest grade."""

    of: Callable[[Reading], float]
    greatest: Callable[[tuple[int, int]], float]

    def share(self, reading: Reading, grades: tuple[int, int]) -> float:
        """The margin on the scale from 0, the second slot as far ahead as can be, to 1; 1/2 is neutral."""
        return 0.5 + self.of(reading) / (2 * self.greatest(grades))


MARGINS: Mapping[str, Margin] = MappingProxyType(
    {
        "blended": Margin(blended, lambda grades: grades[1] - grades[0] + 0.5),
        "nvidia": Margin(nvidia, lambda grades: max(grades[1] - grades[0], 5.0)),
    }
)
