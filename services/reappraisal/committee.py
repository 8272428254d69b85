"""The committee: how the scores of several members become one score of each candidate, and which candidate it chooses.

Guarantee: pure. The order of members changes nothing. A constant added to a member's raw scores (and to those of its
anchors) changes nothing either, nor does a positive factor, up to rounding: some runtimes draw a new bias for a model's
scores at each start. A score that is missing is never made up: a candidate that one member did not score has none.

A member is one model, or an ensemble of several seeds of one architecture. Its raw scores are put in standard
deviations from a mean, z, and the score is mean(z) - 0.5 * std(z) over the members: a guard that rewards only what they
agree on, as the model card of Reappraisal-4B-GRPO-Committee has it. It follows Coste et al. (2023, "Reward Model
Ensembles Help Mitigate Overoptimization"), who subtract a multiple of the variance instead.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

DISAGREEMENT_PENALTY = 0.5
_NO_SPREAD = 1e-12  # a std below this share of the greatest value is rounding
_EQUAL = 1e-9  # scores nearer than this are one
_GREATEST = 1e100  # beyond it no score means anything, and squares overflow


@dataclass(frozen=True, slots=True)
class Rule:
    """How a committee weighs its members.

    `weights`, by member, are positive; only their ratios count. `normalise` says what a member's z is counted from:
    `reference`, its own scores of the anchors, or `group`, its scores of the item's candidates. Only the first tells
    how good an item's candidates are, beside which is better. Raises ValueError for no members and for other weights.
    """

    weights: Mapping[str, float]
    normalise: Literal["reference", "group"]

    def __post_init__(self) -> None:
        if not self.weights or not all(0 < weight < math.inf for weight in self.weights.values()):
            raise ValueError("a committee has one member or more, each of a positive weight")


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a committee makes of one candidate.

    `raw` and `z` are by member, None where there is no value; `missing` names the members without a raw score. `mean`
    and `std` are those of z over the members, by their weights, and `score` is mean - 0.5 * std: None for all three
    when a member is missing. Under `group` such a candidate is outside of the group and has no z either.
    """

    raw: Mapping[str, float | None]
    z: Mapping[str, float | None]
    mean: float | None
    std: float | None
    score: float | None
    missing: tuple[str, ...]


def ensemble(scores: Sequence[Sequence[float | None]]) -> list[float | None]:
    """A member's raw score of each candidate: the mean over its models, None where one of them gave none.

    `scores` holds one sequence a model, all of the same candidates: ValueError where their lengths differ, and for a
    score beyond 1e100.
    """
    if any(score is not None and not abs(score) <= _GREATEST for given in scores for score in given):
        raise ValueError(f"a model gave a score that is beyond {_GREATEST:g}")
    candidates = zip(*scores, strict=True)
    return [None if None in given else fmean(score for score in given if score is not None) for given in candidates]


def assess(
    raw: Mapping[str, Sequence[float | None]], rule: Rule, anchors: Mapping[str, Sequence[float]] | None
) -> list[Assessment]:
    """Assess an item's candidates by their raw scores, by member, None where there is none.

    `anchors` are the members' scores of the anchor texts; under `group` they are not looked at. Means and standard
    deviations are those of a population. Under `group` they are taken over the candidates that every member scored, and
    a member that gives all of these the same score cannot tell them apart: its z is 0. One alone has no z at all: there
    is nothing to compare it with.

    Raises ValueError when the members are not the rule's or scored different numbers of candidates, for a score or a z
    beyond 1e100, and under `reference` for a member without anchors or with the same score of all of them: that model
    is broken, and no candidate's score would mean anything.
    """
    members = sorted(rule.weights)  # in one order, so that sums are the same to the last bit
    if sorted(raw) != members:
        raise ValueError(f"the committee is {', '.join(members)}; scores are there of {', '.join(sorted(raw))}")
    if len({len(scores) for scores in raw.values()}) > 1:
        raise ValueError("the members scored different numbers of candidates")
    scores = np.column_stack([_values(member, raw[member]) for member in members])
    z = _within_group(scores) if rule.normalise == "group" else _against_anchors(scores, members, anchors or {})
    if (np.abs(z) > _GREATEST).any():
        raise ValueError(f"a score is more than {_GREATEST:g} standard deviations from the mean")
    weights = [rule.weights[member] for member in members]
    mean = np.average(z, axis=1, weights=weights)
    std = np.sqrt(np.average((z - mean[:, None]) ** 2, axis=1, weights=weights))
    score = mean - DISAGREEMENT_PENALTY * std
    return [
        Assessment(
            raw=dict(zip(members, map(_known, scores[i]), strict=True)),
            z=dict(zip(members, map(_known, z[i]), strict=True)),
            mean=_known(mean[i]),
            std=_known(std[i]),
            score=_known(score[i]),
            missing=tuple(member for member in members if raw[member][i] is None),
        )
        for i in range(len(scores))
    ]


def choose(assessments: Sequence[Assessment]) -> int | None:
    """The index of the best score; of scores that are equal but for rounding the earliest. None when there is none."""
    best = max((one.score for one in assessments if one.score is not None), default=None)
    if best is None:
        return None
    return next(i for i, one in enumerate(assessments) if one.score is not None and one.score >= best - _EQUAL)


def _values(member: str, scores: Sequence[float | None]) -> NDArray[np.float64]:
    """Scores (n,), NaN where there is none."""
    if not all(score is None or abs(score) <= _GREATEST for score in scores):
        raise ValueError(f"{member} gave a score that is beyond {_GREATEST:g}")
    return np.array([math.nan if score is None else score for score in scores], dtype=np.float64)


def _known(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)


def _within_group(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """z (candidates, members) over the candidates that every member scored; NaN for all others."""
    z = np.full_like(scores, math.nan)
    inside = ~np.isnan(scores).any(axis=1)
    if inside.sum() > 1:  # one alone can be compared with nothing
        mean, std = _scale(scores[inside])
        z[inside] = np.where(std > 0, (scores[inside] - mean) / np.where(std > 0, std, 1), 0)
    return z


def _against_anchors(
    scores: NDArray[np.float64], members: Sequence[str], anchors: Mapping[str, Sequence[float]]
) -> NDArray[np.float64]:
    """z (candidates, members) by each member's own anchors; NaN where there is no raw score."""
    z = np.empty_like(scores)
    for column, member in enumerate(members):
        if not anchors.get(member):
            raise ValueError(f"{member} has no scores of the anchors")
        mean, std = _scale(_values(member, anchors[member]))
        if std == 0:
            raise ValueError(f"{member} gives every anchor the same score")
        with np.errstate(over="ignore"):  # the infinite is beyond what counts, and is refused with it
            z[:, column] = (scores[:, column] - mean) / std
    return z


def _scale(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and population std of values (n, ...) over the first axis; a std that is rounding is 0."""
    std = values.std(axis=0)
    return values.mean(axis=0), np.where(std > _NO_SPREAD * np.abs(values).max(axis=0), std, 0)
