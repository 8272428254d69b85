"""The committee's arithmetic against numpy's, what must not change it, and what it does without a score."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.reappraisal.committee import Assessment, Rule, assess, choose, ensemble

ROUNDING = 1e-9
GROUP = Rule({"ensemble": 1.0, "generative": 1.0}, "group")
REFERENCE = Rule({"ensemble": 1.0, "generative": 1.0}, "reference")
ANCHORS = {"ensemble": [-1.0, 1.0], "generative": [0.0, 20.0]}  # means 0 and 10, stds 1 and 10

Raw = dict[str, list[float | None]]
Normalise = Literal["reference", "group"]

values = st.integers(-640, 640).map(lambda eighths: eighths / 8)  # sums of these are exact
names = st.lists(st.text("abcdef", min_size=1), min_size=1, max_size=4, unique=True)


@st.composite
def committees(draw: st.DrawFn, gaps: bool = True) -> tuple[Raw, dict[str, list[float]]]:
    """Raw scores of up to six candidates, and anchors that no member gives one and the same score."""
    members, candidates = draw(names), draw(st.integers(0, 6))
    score = st.none() | values if gaps else values
    anchors = st.lists(values, min_size=2, max_size=6).filter(lambda scores: len(set(scores)) > 1)
    raw = {member: draw(st.lists(score, min_size=candidates, max_size=candidates)) for member in members}
    return raw, {member: draw(anchors) for member in members}


def equal(members: Mapping[str, Any], normalise: Normalise) -> Rule:
    return Rule(dict.fromkeys(members, 1.0), normalise)


def given_by_all(raw: Raw) -> list[int]:
    return [i for i, scores in enumerate(zip(*raw.values(), strict=True)) if None not in scores]


def expected(z: Sequence[float]) -> tuple[Any, Any, Any]:
    """Mean, std and score of a candidate, by numpy."""
    mean, std = np.mean(z), np.std(z)
    return pytest.approx(mean, abs=ROUNDING), pytest.approx(std, abs=ROUNDING), pytest.approx(mean - std / 2, abs=1e-9)


def numbers(one: Assessment) -> tuple[float | None, float | None, float | None]:
    return one.mean, one.std, one.score


def same(some: Sequence[Assessment], others: Sequence[Assessment]) -> None:
    """The same but for rounding, raw scores aside."""
    assert [one.missing for one in some] == [one.missing for one in others]
    for one, other in zip(some, others, strict=True):
        assert one.z == pytest.approx(other.z, rel=ROUNDING, abs=ROUNDING)
        assert numbers(one) == pytest.approx(numbers(other), rel=ROUNDING, abs=ROUNDING)
    assert choose(some) == choose(others)


@given(committees())
def test_by_reference_scores_are_numpys_mean_less_half_the_std_of_z(committee: tuple[Raw, Any]) -> None:
    raw, anchors = committee
    assessments = assess(raw, equal(raw, "reference"), anchors)
    complete = given_by_all(raw)
    assert [i for i, one in enumerate(assessments) if one.score is not None] == complete
    for i, one in enumerate(assessments):
        z = {m: None if raw[m][i] is None else (raw[m][i] - np.mean(anchors[m])) / np.std(anchors[m]) for m in raw}
        assert one.raw == {member: raw[member][i] for member in raw}
        assert one.z == pytest.approx(z, abs=ROUNDING)
        assert set(one.missing) == {member for member in raw if raw[member][i] is None}
        assert numbers(one) == (expected(list(z.values())) if i in complete else (None, None, None))


@given(committees())
def test_by_group_scores_are_numpys_over_the_candidates_that_all_members_scored(committee: tuple[Raw, Any]) -> None:
    raw, _ = committee
    assessments = assess(raw, equal(raw, "group"), None)
    complete = given_by_all(raw)
    group = {member: [raw[member][i] for i in complete] for member in raw}
    spread = {member: np.std(group[member]) if complete else 0 for member in raw}
    for i, one in enumerate(assessments):
        if i not in complete or len(complete) == 1:  # there is nothing to compare it with
            assert one.z == dict.fromkeys(raw)
            assert numbers(one) == (None, None, None)
            continue
        z = {m: (raw[m][i] - np.mean(group[m])) / spread[m] if spread[m] else 0.0 for m in raw}
        assert one.z == pytest.approx(z, abs=ROUNDING)
        assert numbers(one) == expected(list(z.values()))


@given(committees(gaps=False), st.data())
def test_a_weight_of_three_counts_like_three_members_that_agree(
    committee: tuple[Raw, Any], data: st.DataObject
) -> None:
    raw, anchors = committee
    times = {member: data.draw(st.integers(1, 4)) for member in raw}
    scale = data.draw(st.sampled_from([0.01, 1.0, 50.0]))  # only ratios count
    weighted = assess(raw, Rule({member: scale * n for member, n in times.items()}, "reference"), anchors)
    for one in weighted:
        repeated = [one.z[member] for member, n in times.items() for _ in range(n)]
        assert numbers(one) == expected([z for z in repeated if z is not None])


@given(committees(), st.sampled_from(["reference", "group"]), st.data())
def test_the_order_of_members_changes_nothing_at_all(
    committee: tuple[Raw, Any], normalise: Normalise, data: st.DataObject
) -> None:
    raw, anchors = committee
    order = data.draw(st.permutations(list(raw)))
    weights = {member: data.draw(st.sampled_from([0.3, 0.5, 0.7])) for member in raw}
    turned = {member: weights[member] for member in order}
    assert assess(raw, Rule(weights, normalise), anchors) == assess(
        {member: raw[member] for member in order},
        Rule(turned, normalise),
        {member: anchors[member] for member in order},
    )


@given(committees(), st.sampled_from(["reference", "group"]), st.data())
def test_a_constant_and_a_positive_factor_of_a_member_change_nothing(
    committee: tuple[Raw, Any], normalise: Normalise, data: st.DataObject
) -> None:
    raw, anchors = committee
    moved, moved_anchors = dict(raw), dict(anchors)
    for member in raw:
        constant, factor = data.draw(values), data.draw(st.sampled_from([0.01, 1.0, 300.0]))
        moved[member] = [None if score is None else factor * score + constant for score in raw[member]]
        moved_anchors[member] = [factor * score + constant for score in anchors[member]]
    rule = equal(raw, normalise)
    same(assess(raw, rule, anchors), assess(moved, rule, moved_anchors))


@given(committees(), st.sampled_from(["reference", "group"]), st.data())
def test_the_order_of_candidates_changes_no_score(
    committee: tuple[Raw, Any], normalise: Normalise, data: st.DataObject
) -> None:
    raw, anchors = committee
    rule = equal(raw, normalise)
    straight = assess(raw, rule, anchors)
    order = data.draw(st.permutations(range(len(straight))))
    turned = assess({member: [scores[i] for i in order] for member, scores in raw.items()}, rule, anchors)
    for i, one in zip(order, turned, strict=True):
        assert numbers(one) == pytest.approx(numbers(straight[i]), abs=ROUNDING)


@given(st.lists(st.tuples(values, values)))
def test_of_two_equal_members_the_lower_one_counts_three_quarters(scores: list[tuple[float, float]]) -> None:
    first, second = ([pair[i] for pair in scores] for i in (0, 1))
    for one in assess({"ensemble": first, "generative": second}, REFERENCE, ANCHORS):
        low, high = sorted(one.z.values())
        assert one.score == pytest.approx(0.75 * low + 0.25 * high)  # (a + b) / 2 - |a - b| / 4


@pytest.mark.parametrize(
    ("weights", "mean", "std", "score"),
    [
        ((0.5, 0.5), 0.0, 1.0, -0.5),  # the committee of the model card
        ((0.7, 0.3), 0.4, math.sqrt(0.84), 0.4 - math.sqrt(0.21)),  # its version that leans on the ensemble
        ((7, 3), 0.4, math.sqrt(0.84), 0.4 - math.sqrt(0.21)),
    ],
)
def test_members_that_disagree_by_the_weights_of_the_model_card(
    weights: tuple[float, float], mean: float, std: float, score: float
) -> None:
    rule = Rule(dict(zip(("ensemble", "generative"), weights, strict=True)), "reference")
    (one,) = assess({"ensemble": [1.0], "generative": [0.0]}, rule, ANCHORS)
    assert one.z == {"ensemble": 1.0, "generative": -1.0}
    assert numbers(one) == pytest.approx((mean, std, score))


def test_an_answer_that_both_like_beats_one_that_only_one_member_loves() -> None:
    # z: 1 and 1 (score 1) against 3 and -0.5 (mean 1.25, std 1.75)
    assessments = assess({"ensemble": [3.0, 1.0], "generative": [5.0, 20.0]}, REFERENCE, ANCHORS)
    assert [one.score for one in assessments] == pytest.approx([0.375, 1.0])
    assert choose(assessments) == 1


def test_a_single_member_is_its_own_mean() -> None:
    assessments = assess({"only": [2.0, 5.0]}, Rule({"only": 0.2}, "reference"), {"only": [0.0, 2.0]})
    assert [numbers(one) for one in assessments] == [(1.0, 0.0, 1.0), (4.0, 0.0, 4.0)]


def test_one_candidate_is_no_group_and_has_no_score() -> None:
    (one,) = assess({"ensemble": [7.3], "generative": [-2.1]}, GROUP, None)
    assert numbers(one) == (None, None, None)
    assert (one.missing, choose([one])) == ((), None)
    other, one = assess({"ensemble": [7.3, 1.0], "generative": [-2.1, None]}, GROUP, None)
    assert (other.score, one.score, one.missing) == (None, None, ("generative",))


@pytest.mark.parametrize("alike", [[0.3, 0.3, 0.3], [0.1 + 0.2, 0.3, 0.3], [-1e9, -1e9, -1e9], [0.0, 0.0, 0.0]])
def test_a_member_that_cannot_tell_the_group_apart_says_nothing(alike: list[float]) -> None:
    assessments = assess({"ensemble": [1.0, 2.0, 3.0], "generative": alike}, GROUP, None)
    assert [one.z["generative"] for one in assessments] == [0.0, 0.0, 0.0]
    assert choose(assessments) == 2


def test_differences_far_below_the_scores_themselves_still_count() -> None:
    (low, high) = assess({"ensemble": [1000.0, 1000.0 + 2**-20], "generative": [0.0, 0.0]}, GROUP, None)
    assert (low.z["ensemble"], high.z["ensemble"]) == (-1.0, 1.0)


def test_of_candidates_that_are_all_alike_the_first_is_chosen() -> None:
    assessments = assess({"ensemble": [1.5, 1.5], "generative": [0.2, 0.2]}, GROUP, None)
    assert [one.score for one in assessments] == [0.0, 0.0]
    assert choose(assessments) == 0


def test_a_candidate_without_one_members_score_has_none_and_is_not_in_the_group() -> None:
    raw: Raw = {"ensemble": [1.0, 900.0, 3.0], "generative": [0.0, None, 1.0]}
    low, without, high = assess(raw, GROUP, None)
    assert without == Assessment(
        raw={"ensemble": 900.0, "generative": None},
        z={"ensemble": None, "generative": None},
        mean=None,
        std=None,
        score=None,
        missing=("generative",),
    )
    assert [one.z["ensemble"] for one in (low, high)] == [-1.0, 1.0]  # 900 moved nothing
    assert choose([low, without, high]) == 2


def test_by_reference_the_scores_that_are_there_keep_their_z() -> None:
    _, without = assess({"ensemble": [0.0, 2.0], "generative": [0.0, None]}, REFERENCE, ANCHORS)
    assert without.z == {"ensemble": 2.0, "generative": None}
    assert without.score is None


def test_without_any_score_nothing_is_chosen() -> None:
    assessments = assess({"ensemble": [1.0, None], "generative": [None, 2.0]}, GROUP, None)
    assert [one.score for one in assessments] == [None, None]
    assert [one.missing for one in assessments] == [("generative",), ("ensemble",)]
    assert choose(assessments) is None
    assert choose([]) is None


def scored(*scores: float | None) -> list[Assessment]:
    return [Assessment(raw={}, z={}, mean=score, std=score, score=score, missing=()) for score in scores]


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ((0.1, 0.5, 0.2), 1),
        ((-3.0, -1.0, -2.0), 1),
        ((0.5, 0.5, 0.1), 0),
        ((0.5, 0.5 + 1e-12, 0.1), 0),  # equal but for rounding
        ((0.5, 0.5 + 1e-6, 0.1), 1),
        ((None, 0.3, 0.3), 1),
        ((None, None), None),
    ],
)
def test_the_best_score_is_chosen_and_the_first_of_equal_ones(scores: Any, best: int | None) -> None:
    assert choose(scored(*scores)) == best


def test_an_ensemble_scores_by_the_mean_of_its_models_and_only_where_all_of_them_did() -> None:
    assert ensemble([[1.0, 2.0, None, 0.0], [2.0, 4.0, 5.0, None], [6.0, 0.0, 1.0, 3.0]]) == [3.0, 2.0, None, None]
    assert ensemble([[0.25, None]]) == [0.25, None]
    with pytest.raises(ValueError, match="shorter"):
        ensemble([[1.0, 2.0], [1.0]])


@pytest.mark.parametrize("weights", [{}, {"a": 0.0}, {"a": 1.0, "b": -0.5}, {"a": math.nan}, {"a": math.inf}])
def test_a_rule_has_members_of_positive_weight(weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="positive weight"):
        Rule(weights, "group")


@pytest.mark.parametrize(
    ("raw", "rule", "anchors", "message"),
    [
        ({"ensemble": [1.0]}, GROUP, None, "committee is ensemble, generative"),
        ({"ensemble": [1.0], "generative": [1.0], "third": [1.0]}, GROUP, None, "committee is ensemble, generative"),
        ({"ensemble": [1.0, 2.0], "generative": [1.0]}, GROUP, None, "different numbers"),
        ({"ensemble": [math.nan], "generative": [1.0]}, GROUP, None, "ensemble gave a score that is beyond"),
        ({"ensemble": [1.0], "generative": [-math.inf]}, GROUP, None, "generative gave a score that is beyond"),
        ({"ensemble": [1.0], "generative": [1.0]}, REFERENCE, None, "no scores of the anchors"),
        (
            {"ensemble": [1.0], "generative": [1.0]},
            REFERENCE,
            {"ensemble": [0.0, 1.0]},
            "generative has no scores of the anchors",
        ),
        ({"ensemble": [1.0], "generative": [1.0]}, REFERENCE, ANCHORS | {"generative": []}, "generative has no scores"),
        (
            {"ensemble": [1.0], "generative": [1.0]},
            REFERENCE,
            ANCHORS | {"ensemble": [0.1 + 0.2, 0.3, 0.3]},
            "ensemble gives every anchor the same score",
        ),
        (
            {"ensemble": [1.0], "generative": [1.0]},
            REFERENCE,
            ANCHORS | {"ensemble": [0.0, math.inf]},
            "ensemble gave a score that is beyond",
        ),
        *(
            (
                {"ensemble": [score], "generative": [1.0]},
                REFERENCE,
                ANCHORS | {"ensemble": [0.0, 2 * std]},
                r"more than 1e\+100 standard deviations from the mean",
            )
            for score, std in [(-1e100, 1e-140), (1e100, 1e-150), (1e100, 0.5), (1.0, 1e-120)]
        ),
    ],
)
def test_what_no_committee_can_assess_is_refused(
    raw: Mapping[str, Sequence[float | None]], rule: Rule, anchors: Mapping[str, Sequence[float]] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        assess(raw, rule, anchors)
