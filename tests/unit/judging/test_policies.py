"""The score policies have NeMo Gym's values, no favourites, and no text that slows them down."""

from collections.abc import Sequence
from dataclasses import fields
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.judging.policies import POLICIES, LengthPolicy, Policy, StylePolicy

PIECES = st.sampled_from(
    ["<think>", "</think>", "# ", "- ", "1. ", "**b**", "__b__", "😀", "```", "\n", " ", "a", "好", "*", "."]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)
COEFFICIENTS = st.sampled_from([0.0, 0.25, 1.0, 7.0])
LENGTHS = st.builds(
    LengthPolicy,
    reasoning_bonus=COEFFICIENTS,
    answer_bonus=COEFFICIENTS,
    top_percentile=st.floats(0, 1),
    reasoning_coefficient=COEFFICIENTS,
    answer_coefficient=COEFFICIENTS,
)
ANY_POLICY = st.one_of(LENGTHS, st.builds(StylePolicy, coefficient=COEFFICIENTS))
# few scores and texts, so that ties are frequent
GROUPS = st.lists(st.tuples(st.sampled_from([1.0, 2.5, 3.0, 5.0]), TEXTS), min_size=2, max_size=16)


def adjusted(policy: Policy, scores: Sequence[float], texts: Sequence[str]) -> list[float]:
    return policy.adjust(np.array(scores, dtype=float), texts).tolist()


def style(first: str, second: str) -> list[float]:
    """Two equal scores after the style policy with coefficient 1: [0.5, -0.5] where the first is the plainer."""
    return adjusted(StylePolicy(coefficient=1.0), [0, 0], [first, second])


def density(answer: str) -> float:
    """The density that the style policy sees, measured between one without any style and one of 1/8."""
    scores = adjusted(StylePolicy(coefficient=1.0), [0, 0, 0], ["plain", "**b** cd", answer])
    return (scores[0] - scores[2]) / (scores[0] - scores[1]) / 8


def test_the_groups_lengths_spread_the_scores_by_the_coefficient_around_their_mean() -> None:
    # lengths 2, 4, 10: weights 1, 3/4 and 0, less their mean 7/12
    policy = LengthPolicy(answer_coefficient=0.6)
    assert adjusted(policy, [3, 4, 5], ["aa", " bbbb\n", "c" * 10]) == pytest.approx([3.25, 4.1, 4.65])


def test_reasoning_and_answer_have_coefficients_of_their_own() -> None:
    texts = ["<think>\nlong thought\n</think>\nab", "x</think>abcd"]
    assert adjusted(LengthPolicy(reasoning_coefficient=1.0), [0, 0], texts) == [-0.5, 0.5]
    assert adjusted(LengthPolicy(answer_coefficient=1.0), [0, 0], texts) == [0.5, -0.5]
    assert adjusted(LengthPolicy(reasoning_coefficient=1.0, answer_coefficient=0.5), [0, 0], texts) == [-0.25, 0.25]


def test_only_the_last_closing_tag_ends_the_reasoning_and_without_one_there_is_none() -> None:
    only_answers = LengthPolicy(answer_coefficient=1.0)
    assert adjusted(only_answers, [0, 0], ["long </think> longer </think> a", "ab"]) == [0.5, -0.5]
    assert adjusted(only_answers, [0, 0], ["<think>never closed", "abcd"]) == [-0.5, 0.5]


def test_neither_the_opening_tag_nor_blanks_count_as_reasoning() -> None:
    texts = ["\n<think> abc\n</think>x", "abc</think>x", "abcde</think>x"]
    assert adjusted(LengthPolicy(reasoning_coefficient=3.0), [0, 0, 0], texts) == pytest.approx([1, 1, -2])


def test_the_shortest_has_its_bonus_only_among_the_top() -> None:
    policy = LengthPolicy(answer_bonus=0.5, top_percentile=0.5)
    assert adjusted(policy, [1, 2, 3, 4], ["aaa", "aaa", "a", "aaa"]) == [1, 2, 3.5, 4]
    # the shortest of all is not among the best two, and nobody else has its bonus
    assert adjusted(policy, [1, 2, 3, 4], ["aaa", "a", "aa", "aaa"]) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("percentile", "rewarded"), [(0.0, 1), (0.2, 1), (0.39, 1), (0.4, 2), (0.5, 2), (0.6, 3), (1.0, 5)]
)
def test_the_top_is_rounded_down_and_never_empty(percentile: float, rewarded: int) -> None:
    policy = LengthPolicy(answer_bonus=10.0, top_percentile=percentile)
    scores = adjusted(policy, [5, 4, 3, 2, 1], ["a"] * 5)
    assert sum(score > 10 for score in scores) == rewarded
    assert scores[:rewarded] == [15 - i for i in range(rewarded)]


def test_all_that_tie_with_the_last_of_the_top_belong_to_it() -> None:
    assert adjusted(LengthPolicy(answer_bonus=1.0), [3, 3, 1], ["ab", "a", "abc"]) == [3, 4, 1]


def test_each_of_several_shortest_has_the_bonus() -> None:
    assert adjusted(LengthPolicy(answer_bonus=1.0), [3, 3, 3], ["a", "abc", "b"]) == [4, 3, 4]


def test_both_bonuses_add_up_and_an_empty_part_has_none() -> None:
    policy = LengthPolicy(reasoning_bonus=1.0, answer_bonus=0.25)
    texts = ["thought</think>a", "ab", " </think> "]
    assert adjusted(policy, [3, 3, 3], texts) == [4.25, 3, 3]
    assert adjusted(policy, [3, 3], ["", "</think>"]) == [3, 3]


@pytest.mark.parametrize(
    ("answer", "elements", "length"),
    [
        ("# One\n###### Six\nx", 2, 18),
        ("####### seven\n#none x", 0, 21),
        ("- a\n * b\n\t+ c\n12. d", 4, 19),
        ("-a\n1.5 b\n--- c", 0, 14),
        ("\n\n- a\n\n\n1. b", 2, 10),
        ("**a** __b__ **c\nd**", 2, 19),
        ("**a __b__ c**", 2, 13),
        ("a😀😀 🇫🇷 ☀ ✂", 6, 10),
        ("你好，カナ、한글 ⓐ", 0, 11),
        ("a\n```py\n# b\n- c\n```\n- d", 1, 6),
        ("a ```b``` **c** ```\n# de", 2, 17),
        ("```b```\n\n- a", 1, 3),
        ("```\n**b**\n```", 0, 0),
        ("", 0, 0),
    ],
)
def test_elements_of_style_are_counted_outside_fenced_code(answer: str, elements: int, length: int) -> None:
    assert density(answer) == pytest.approx(elements / length if length else 0)


def test_style_is_judged_by_the_answer_and_by_its_density() -> None:
    assert style("**bold**</think>plain", "**b** plain") == [0.5, -0.5]
    assert style("**b** and a long plain text", "**b** short") == [0.5, -0.5]
    assert style("**b** c", "**d** e") == [0, 0]
    spread = adjusted(StylePolicy(coefficient=3.0), [1, 1, 1], ["abcdefgh", "**b** ab", "**b** **b** ab c"])
    assert spread == pytest.approx([3, 0, 0])


@settings(deadline=None)
@given(group=GROUPS, policy=ANY_POLICY, data=st.data())
def test_permuting_the_candidates_permutes_the_scores(group, policy, data) -> None:
    order = data.draw(st.permutations(range(len(group))))
    seen = adjusted(policy, *zip(*group, strict=True))
    found = adjusted(policy, *zip(*(group[i] for i in order), strict=True))
    assert found == pytest.approx([seen[i] for i in order], abs=1e-12)


@settings(deadline=None)
@given(group=GROUPS, policy=ANY_POLICY, data=st.data())
def test_candidates_with_equal_texts_keep_their_order(group, policy, data) -> None:
    text = data.draw(TEXTS)
    scores = [score for score, _ in group] + [2.0, 2.0, 4.0]
    after = adjusted(policy, scores, [text for _, text in group] + [text] * 3)
    assert after[-3] == after[-2] < after[-1]


@settings(deadline=None)
@given(group=GROUPS, policy=ANY_POLICY)
def test_texts_that_are_all_equal_change_no_order(group, policy) -> None:
    scores = np.array([score for score, _ in group])
    after = policy.adjust(scores, [group[0][1]] * len(group))
    assert np.array_equal(np.sign(np.subtract.outer(after, after)), np.sign(np.subtract.outer(scores, scores)))


@settings(deadline=None)
@given(group=GROUPS, percentile=st.floats(0, 1))
def test_coefficients_of_zero_change_nothing(group, percentile) -> None:
    scores, texts = zip(*group, strict=True)
    assert adjusted(LengthPolicy(top_percentile=percentile), scores, texts) == list(scores)
    assert adjusted(StylePolicy(), scores, texts) == list(scores)


@settings(deadline=None)
@given(group=GROUPS, coefficient=COEFFICIENTS)
def test_penalties_leave_the_mean_of_the_scores_where_it_was(group, coefficient) -> None:
    scores, texts = zip(*group, strict=True)
    penalties = LengthPolicy(reasoning_coefficient=coefficient, answer_coefficient=coefficient)
    for policy in (penalties, StylePolicy(coefficient=coefficient)):
        assert np.mean(adjusted(policy, scores, texts)) == pytest.approx(np.mean(scores))


def test_the_scores_that_were_given_stay_as_they_are() -> None:
    scores = np.array([1.0, 2.0])
    for policy in (LengthPolicy(1.0, 1.0, 1.0, 1.0, 1.0), StylePolicy(1.0)):
        assert policy.adjust(scores, ["a", "**b**"]) is not scores
        assert scores.tolist() == [1, 2]


def test_policies_are_made_by_name() -> None:
    assert set(POLICIES) == {"length", "style"}
    assert POLICIES["length"](answer_bonus=0.5) == LengthPolicy(answer_bonus=0.5)
    assert POLICIES["style"](coefficient=0.5) == StylePolicy(coefficient=0.5)


@pytest.mark.parametrize("value", [-0.1, -inf, inf, nan])
@pytest.mark.parametrize(
    ("name", "coefficient"), [(name, field.name) for name, made in POLICIES.items() for field in fields(made)]
)
def test_a_coefficient_out_of_its_range_is_refused(name: str, coefficient: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{coefficient} is"):
        POLICIES[name](**{coefficient: value})


def test_a_percentile_above_one_is_refused() -> None:
    assert LengthPolicy(top_percentile=1.0).top_percentile == 1
    with pytest.raises(ValueError, match="at most 1"):
        LengthPolicy(top_percentile=1.1)


@pytest.mark.parametrize("policy", [LengthPolicy(), StylePolicy()])
@pytest.mark.parametrize(
    ("scores", "texts"),
    [([1.0, 2.0], ["a"]), ([1.0], ["a"]), ([], []), ([1.0, nan], ["a", "b"]), ([[1.0, 2.0]] * 2, ["a", "b"])],
)
def test_scores_that_do_not_belong_to_the_texts_are_refused(
    policy: Policy, scores: list[float], texts: list[str]
) -> None:
    with pytest.raises(ValueError, match="finite score for each"):
        policy.adjust(np.array(scores), texts)


# Every one of them takes hours if any place is read anew for each character before it.
@pytest.mark.parametrize(
    ("hostile", "elements"),
    [
        ("x" + "\n" * 1_000_000 + "x", 0),
        ("x\n" + " " * 1_000_000 + "x", 0),
        ("x\n" + " " * 1_000_000 + "-", 0),
        ("x" + "\n \t" * 333_333 + "- x", 1),
        ("1" * 1_000_000, 0),
        ("#" * 1_000_000, 0),
        ("*" * 1_000_000, 0),
        ("**" + "a" * 1_000_000, 0),
        ("**a" * 333_333, 166_666),
        ("**a*b" * 200_000, 0),
        ("__a_b" * 200_000, 0),
        ("_" * 1_000_000, 0),
        ("`" * 999_999 + "x", 0),
        ("`` " * 333_333, 0),
        ("```" + "`` " * 333_333, 0),
        ("<think>" * 140_000, 0),
        ("</think" * 140_000, 0),
        ("</think>" * 125_000 + "- x", 1),
        ("😀" * 1_000_000, 1_000_000),
    ],
    ids=lambda value: repr(value[:9]) if isinstance(value, str) else None,
)
def test_no_text_slows_a_policy_down(hostile: str, elements: int) -> None:
    policy = LengthPolicy(1.0, 1.0, 1.0, 1.0, 1.0)
    answer = hostile.rpartition("</think>")[2].strip()
    assert np.isfinite(adjusted(policy, [1, 2], [hostile, "plain"])).all()
    assert density(hostile) == pytest.approx(elements / len(answer))
