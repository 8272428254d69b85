"""Named policies that adjust the scores of n candidates for how their texts look: for their length, for their style.

Guarantee: pure, and without favourites. Permuting the candidates permutes the scores, a coefficient of 0 changes
nothing, and no policy exchanges two candidates whose texts are equal. The time is linear in the length of the texts.

The formulas are those of the resources server `genrm_compare` in NVIDIA's NeMo Gym, under its names: `length` are its
length bonuses and its group-relative length penalties, `style` is its group-relative style penalty. They differ from
it in two points. Where several texts are the shortest, each has the bonus (there, the first that was given). And no
letter is an emoji: its range from U+24C2 to U+1F251 takes every Chinese, Japanese and Korean character for one.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]

# Possessive, and an attempt that fails ends before the next can begin: no character is read more than a few times.
_STYLES = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^#{1,6}+\s",  # a heading
        r"^[^\S\n]*+(?:[-*+]|\d++\.)\s",  # an item of a list
        r"\*\*[^*\n]++\*\*",  # bold
        r"__[^_\n]++__",
        "[\u2600-\u27bf\U0001f1e0-\U0001f1ff\U0001f300-\U0001f64f\U0001f680-\U0001f6ff\U0001f900-\U0001faff]",  # emoji
    )
)


class Policy(Protocol):
    """What adjusts scores. Coefficients and bonuses are in the unit of the scores that they adjust."""

    def adjust(self, scores: Scores, texts: Sequence[str]) -> Scores:
        """The adjusted scores (n,) of n >= 2 candidates with these `scores` (n,) and `texts`; a new array.

        Raises ValueError unless there is one finite score for each of two or more texts.
        """
        ...


@dataclass(frozen=True, slots=True)
class LengthPolicy:
    """Shorter is better: the group's penalties, and bonuses for the shortest.

    Of every text the reasoning is what precedes its last `</think>`, without an opening `<think>`, and the answer is
    what follows it; a text without that tag is all answer. Lengths r (reasoning) and a (answer) count code points
    between the outermost blanks. The adjusted score of candidate i is::

        score_i + reasoning_bonus * [i in top and r_i = min of all r > 0]
                + answer_bonus    * [i in top and a_i = min of all a > 0]
                + reasoning_coefficient * lean(r)_i + answer_coefficient * lean(a)_i

    where top are the best k = max(1, floor(n * top_percentile)) by their unadjusted scores, with all that tie with the
    last of them, and lean(x)_i = (mean(x) - x_i) / (max(x) - min(x)), 0 where all x are equal. An empty part is the
    leanest, though it never has the bonus.

    In NeMo Gym the coefficients are called `group_reasoning_length_penalty_coeff` and
    `group_answer_length_penalty_coeff`. Raises ValueError for a negative or infinite bonus or coefficient, and for a
    `top_percentile` outside [0, 1].
    """

    reasoning_bonus: float = 0.0
    answer_bonus: float = 0.0
    top_percentile: float = 0.2
    reasoning_coefficient: float = 0.0
    answer_coefficient: float = 0.0

    def __post_init__(self) -> None:
        _require("reasoning_bonus", self.reasoning_bonus)
        _require("answer_bonus", self.answer_bonus)
        _require("top_percentile", self.top_percentile, most=1.0)
        _require("reasoning_coefficient", self.reasoning_coefficient)
        _require("answer_coefficient", self.answer_coefficient)

    def adjust(self, scores: Scores, texts: Sequence[str]) -> Scores:
        """See `Policy.adjust`."""
        _check(scores, texts)
        reasoning, answer = np.array([[len(part) for part in _parts(text)] for text in texts]).T
        last = max(1, int(len(scores) * self.top_percentile))
        top = scores >= np.sort(scores)[-last]
        return np.asarray(
            scores
            + self.reasoning_bonus * (top & _shortest(reasoning))
            + self.answer_bonus * (top & _shortest(answer))
            + self.reasoning_coefficient * _lean(reasoning)
            + self.answer_coefficient * _lean(answer)
        )


@dataclass(frozen=True, slots=True)
class StylePolicy:
    """Plainer is better: the group's penalty for headings, list items, bold and emoji.

    The adjusted score of candidate i is::

        score_i + coefficient * lean(d)_i

    with lean as in `LengthPolicy` and d the number of these elements in the answer for each of its code points, both
    counted outside fenced code; 0 for an empty answer.

    In NeMo Gym the coefficient is called `group_style_penalty_coeff`. Raises ValueError for a negative or infinite one.
    """

    coefficient: float = 0.0

    def __post_init__(self) -> None:
        _require("coefficient", self.coefficient)

    def adjust(self, scores: Scores, texts: Sequence[str]) -> Scores:
        """See `Policy.adjust`."""
        _check(scores, texts)
        return scores + self.coefficient * _lean(np.array([_density(_parts(text)[1]) for text in texts]))


POLICIES: Mapping[str, Callable[..., Policy]] = {"length": LengthPolicy, "style": StylePolicy}


def _require(name: str, value: float, most: float = inf) -> None:
    if not 0 <= value <= most or value == inf:
        raise ValueError(f"{name} is {value}; it is at least 0 and {f'at most {most:g}' if most < inf else 'finite'}")


def _check(scores: Scores, texts: Sequence[str]) -> None:
    if len(texts) < 2 or scores.shape != (len(texts),) or not np.isfinite(scores).all():
        raise ValueError(f"a policy needs a finite score for each of two or more texts, here {len(texts)}")


def _parts(text: str) -> tuple[str, str]:
    """The reasoning and the answer of a text, without the blanks around them."""
    reasoning, _, answer = text.rpartition("</think>")
    return reasoning.strip().removeprefix("<think>").strip(), answer.strip()


def _shortest(lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which (n,) of the lengths are the least that are not 0."""
    return np.equal(lengths, np.min(lengths, where=lengths > 0, initial=np.iinfo(lengths.dtype).max))


def _lean(sizes: NDArray[np.int64 | np.float64]) -> Scores:
    """How far (n,) each size is below their mean, in parts of the range of all; 0 where that is 0."""
    span = np.ptp(sizes)
    if not span:
        return np.zeros(len(sizes))
    above_least = (sizes - sizes.min()) / span
    return np.asarray(above_least.mean() - above_least)


def _density(answer: str) -> float:
    """Elements of style for each code point, outside fenced code."""
    prose = _prose(answer)
    elements = sum(1 for style in _STYLES for _ in style.finditer(prose))
    length = len(prose.strip())
    return elements / length if length else 0.0


def _prose(answer: str) -> str:
    """The answer without its fenced code. A fence that is never closed opens none."""
    pieces = answer.split("```")
    if len(pieces) % 2 == 0:
        pieces[-2:] = ["```".join(pieces[-2:])]
    return "".join(pieces[::2])
