"""A panel's verdict: hand-computed cases, and the symmetry that it must have."""

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.judging.heard import unanswered
from services.judging.hearing import Comparison, Hearing, HearingOptions
from services.judging.opinion import Opinion
from services.judging.panel import PanelRule, join, single
from services.judging.policies import POLICIES, Policy
from services.judging.protocol import Message
from services.judging.registry import protocol
from services.judging.runtime import Completion
from services.vocabulary import Decide, FinishReason, ItemError, ItemStatus, Mode, OnConflict, Outcome, Winner

A, B, TIE = Winner.A, Winner.B, Winner.TIE
QUESTION = (Message("user", "Which is the capital of France?"),)


def opinion(judge: str, p_a: float) -> Opinion:
    """A judge that prefers A by p_a, in either order."""
    hearing = Hearing(
        judge,
        "q",
        Comparison(QUESTION, ("Paris.", "Lyon.")),
        protocol("sdrm"),
        HearingOptions(mode=Mode.DIRECT),
    )
    for key in hearing.open_calls():
        p_first = 1 - p_a if key.order.swapped else p_a
        hearing.record(key, hearing.read(key, chose(p_first)))
    return hearing.opinion()


def chose(p_first: float) -> Completion:
    logs = tuple((label, math.log(p) if p else -math.inf) for label, p in (("A", p_first), ("B", 1 - p_first)))
    return Completion("", FinishReason.LENGTH, 10, 5, 1, logs, latency_s=0.1)


def failed(judge: str, outcome: Outcome = Outcome.CONTEXT_OVERFLOW) -> Opinion:
    hearing = Hearing(judge, "q", Comparison(QUESTION, ("x", "y")), protocol("sdrm"), HearingOptions(mode=Mode.DIRECT))
    for key in hearing.open_calls():
        hearing.record(key, unanswered(outcome))
    return hearing.opinion()


def test_the_majority_wins_however_sure_the_minority_is() -> None:
    v = join([opinion("one", 0.6), opinion("two", 0.55), opinion("three", 0.0)], PanelRule())
    assert (v.winner, v.error, v.status) == (A, None, ItemStatus.SUCCEEDED)
    assert v.p_a == pytest.approx((0.6 + 0.55 + 0.0) / 3)
    assert v.disagreement == pytest.approx(2 / 3)


def test_the_mean_weighs_how_sure_each_is() -> None:
    v = join([opinion("one", 0.6), opinion("two", 0.55), opinion("three", 0.0)], PanelRule("mean"))
    assert v.winner is B


def test_weights_count() -> None:
    rule = PanelRule(weights={"three": 3.0})
    v = join([opinion("one", 0.6), opinion("two", 0.55), opinion("three", 0.0)], rule)
    assert v.winner is B
    assert v.p_a == pytest.approx((0.6 + 0.55) / 5)
    # one against two agree (weight 1), each against three differ (weight 3 each)
    assert v.disagreement == pytest.approx(6 / 7)


def test_halves_are_a_tie() -> None:
    assert join([opinion("one", 0.9), opinion("two", 0.2)], PanelRule()).winner is TIE
    assert join([opinion("one", 0.9), opinion("two", 0.2)], PanelRule("mean", tie_margin=0.05)).winner is TIE


def test_a_judge_without_an_answer_is_left_out_and_stays_visible() -> None:
    v = join([opinion("one", 0.9), failed("two")], PanelRule(), missing=("three",))
    assert (v.winner, v.p_a, v.disagreement, v.missing) == (A, pytest.approx(0.9), None, ("three",))
    assert [o.reason for o in v.opinions] == [None, "context_overflow"]


def test_without_any_answer_the_item_fails_with_what_another_try_may_cure_first() -> None:
    v = join([failed("one"), failed("two", Outcome.FAILED)], PanelRule())
    assert (v.winner, v.p_a, v.error, v.status) == (None, None, ItemError.RUNTIME_ERROR, ItemStatus.FAILED)


def test_one_judge_is_its_own_panel() -> None:
    alone = opinion("one", 0.7)
    v = single(alone)
    assert (v.winner, v.p_a, v.consistent, v.opinions, v.disagreement) == (A, alone.p_a, True, (alone,), None)


@given(
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    decide=st.sampled_from(["majority", "mean"]),
    margin=st.sampled_from([0.0, 0.1]),
    weights=st.lists(st.floats(0.1, 10), min_size=5, max_size=5),
)
def test_exchanging_the_candidates_exchanges_the_verdict(shares, decide, margin, weights) -> None:
    rule = PanelRule(decide, {f"judge-{n}": weight for n, weight in enumerate(weights)}, margin)

    def heard(values: Sequence[float]) -> list[Opinion]:
        return [opinion(f"judge-{n}", p) for n, p in enumerate(values)]

    seen, mirrored = join(heard(shares), rule), join(heard([1 - p for p in shares]), rule)
    assert mirrored.winner is (seen.winner.mirrored if seen.winner else None)
    assert mirrored.p_a == pytest.approx(1 - seen.p_a, abs=1e-9)
    assert mirrored.disagreement == pytest.approx(seen.disagreement, abs=1e-9)


def many(judge: str, strengths: Sequence[float], **options: object) -> Opinion:
    """A judge that prefers the stronger of any two candidates."""
    texts = tuple(f"answer of {strength}" for strength in strengths)
    hearing = Hearing(
        judge, "q", Comparison(QUESTION, texts), protocol("sdrm"), HearingOptions(mode=Mode.DIRECT, **options)
    )
    while not hearing.ended:
        for key in hearing.open_calls():
            first, second = (strengths[index] for index in hearing.seating(key).candidates)
            hearing.record(key, hearing.read(key, chose(1 / (1 + 2.718281828 ** (second - first)))))
    return hearing.opinion()


def test_many_candidates_are_ranked_by_all_their_pairs() -> None:
    o = many("one", [0.0, 2.0, 1.0])
    assert o.standing is not None
    assert (o.standing.winner, o.standing.ranking, o.standing.ranks) == (1, (1, 2, 0), (3, 1, 2))
    assert (o.winner, o.p_a, o.votes, o.calls) == (None, None, {}, 6)
    assert [(pair.first, pair.second, pair.winner) for pair in o.pairs] == [(0, 1, B), (0, 2, B), (1, 2, A)]
    assert o.standing.matrix[1][0] == pytest.approx(1 / (1 + 2.718281828**-2))
    assert o.standing.matrix[0][0] is None
    assert o.standing.strengths is not None
    low, value, high = o.standing.strengths[1].low, o.standing.strengths[1].value, o.standing.strengths[1].high
    assert low < value < high
    assert Opinion.from_json(json.loads(json.dumps(o.as_json()))) == o


def test_equal_candidates_tie() -> None:
    o = many("one", [1.0, 1.0, 0.0])
    assert o.standing is not None
    assert (o.standing.winner, o.standing.ranks) == (TIE, (1, 1, 3))


def test_pairs_within_the_tie_margin_are_even_in_the_standing() -> None:
    o = many("one", [0.0, 0.4, 0.8], tie_margin=0.3)
    assert [pair.winner for pair in o.pairs] == [TIE] * 3
    assert o.standing is not None
    assert (o.standing.winner, o.standing.ranks, o.standing.scores) == (TIE, (1, 1, 1), (0.5, 0.5, 0.5))
    joined = join([many("one", [0.0, 0.4, 0.8]), many("two", [0.0, 0.4, 0.8])], PanelRule("mean", tie_margin=0.3))
    assert joined.standing is not None
    assert joined.standing.winner is TIE


def test_many_candidates_of_whom_too_many_pairs_abstain_have_no_winner_and_did_not_fail() -> None:
    hearing = Hearing(
        "one",
        "q",
        Comparison(QUESTION, ("a", "b", "c")),
        protocol("sdrm"),
        HearingOptions(mode=Mode.DIRECT, decide=Decide.VOTE, on_conflict=OnConflict.ABSTAIN),
    )
    for key in hearing.open_calls():
        hearing.record(key, hearing.read(key, chose(0.8)))  # the first slot, whoever sits there
    o = hearing.opinion()
    assert (o.standing, o.winner, o.error, o.reason) == (None, None, None, "orders_conflict")
    for v in (single(o), join([o, o], PanelRule())):
        assert (v.winner, v.standing, v.p_a, v.status) == (None, None, None, ItemStatus.SUCCEEDED)
    ranked = join([o, many("two", [0.0, 2.0, 1.0])], PanelRule())
    assert ranked.standing is not None
    assert ranked.standing.winner == 1


def test_a_circle_ranks_all_too() -> None:
    o = many("one", [3.0, 0.0, 1.0, 2.0], pairs="circular")
    assert o.standing is not None
    assert (o.standing.ranking, o.calls) == ((0, 3, 2, 1), 8)
    assert o.standing.matrix[0][2] is None


def test_a_pair_without_an_answer_is_left_out_where_the_others_still_tie_all_together() -> None:
    def heard(*silent: tuple[int, int]) -> Opinion:
        hearing = Hearing(
            "one", "q", Comparison(QUESTION, ("a", "b", "c")), protocol("sdrm"), HearingOptions(mode=Mode.DIRECT)
        )
        for key in hearing.open_calls():
            pair = tuple(sorted(hearing.seating(key).candidates))
            answer = unanswered(Outcome.FAILED) if pair in silent else hearing.read(key, chose(0.8))
            hearing.record(key, answer)
        return hearing.opinion()

    some = heard((0, 1))
    assert some.standing is not None
    assert some.standing.matrix[0][1] is None
    assert (some.pairs[0].error, some.pairs[0].p, some.error) == (ItemError.RUNTIME_ERROR, None, None)
    none = heard((0, 1), (0, 2))
    assert (none.standing, none.error, single(none).status) == (None, ItemError.RUNTIME_ERROR, ItemStatus.FAILED)


@given(strengths=st.permutations([0.0, 0.7, 1.9, 3.2]))
def test_renumbering_the_candidates_renumbers_the_standing(strengths: list[float]) -> None:
    o = many("one", strengths)
    assert o.standing is not None
    assert [strengths[index] for index in o.standing.ranking] == [3.2, 1.9, 0.7, 0.0]
    assert strengths[o.standing.winner] == 3.2


def test_a_panel_ranks_many_candidates_together() -> None:
    opinions = [many("one", [0.0, 2.0, 1.0]), many("two", [0.0, 2.0, 1.0]), many("three", [9.0, 0.0, 1.0])]
    v = join(opinions, PanelRule())
    assert v.standing is not None
    assert (v.standing.winner, v.winner, v.p_a) == (1, None, None)
    assert v.standing.matrix[1][0] == pytest.approx(2 / 3)
    assert v.disagreement == pytest.approx(2 / 3)
    assert join(opinions, PanelRule("mean")).standing != v.standing


def graded(grades: Sequence[int | None], **options: object) -> Opinion:
    """A rubric judge that writes these grades."""
    texts = tuple(map(str, range(len(grades))))
    rubric = protocol("prompted", {"grades": 5})
    hearing = Hearing("rubric", "q", Comparison(QUESTION, texts), rubric, HearingOptions(**options))
    while not hearing.ended:
        for key in hearing.open_calls():
            (candidate,) = hearing.seating(key).candidates
            grade = grades[candidate]
            text = "Hm." if grade is None else f"<score>{grade}</score>"
            hearing.record(key, hearing.read(key, Completion(text, FinishReason.STOP, 1, 0, 1)))
    return hearing.opinion()


def test_two_graded_candidates_are_compared_by_their_grades() -> None:
    o = graded([4, 2], forced_verdict=False)
    assert (o.winner, o.p_a, o.margin, o.grades) == (A, 0.5 + 2 / 8, 2.0, (4.0, 2.0))
    assert (o.consistent, o.votes, o.vote_entropy, o.calls) == (None, {}, None, 2)
    assert graded([3, 3], forced_verdict=False).winner is TIE
    assert graded([4, 3], forced_verdict=False, tie_margin=1.0).winner is TIE


def test_score_policies_move_the_ranks_of_many_candidates() -> None:
    texts = ("short", "a much longer answer that says no more")
    rubric = protocol("prompted", {"grades": 5})

    def heard(*policies: Policy) -> Opinion:
        options = HearingOptions(policies=policies)
        hearing = Hearing("rubric", "q", Comparison(QUESTION, (*texts, "x" * 90)), rubric, options)
        for key, grade in zip(hearing.open_calls(), (3, 4, 1), strict=True):
            written = Completion(f"<score>{grade}</score>", FinishReason.STOP, 1, 0, 1)
            hearing.record(key, hearing.read(key, written))
        return hearing.opinion()

    plain, shorter = heard(), heard(POLICIES["length"](answer_coefficient=4.0))
    assert plain.standing is not None
    assert shorter.standing is not None
    assert (plain.standing.winner, plain.standing.adjusted) == (1, None)
    assert (shorter.standing.winner, shorter.standing.ranks) == (0, (1, 2, 3))
    assert shorter.standing.adjusted is not None
    assert shorter.standing.adjusted[0] > 3
    assert (shorter.standing.scores, shorter.grades) == (plain.standing.scores, (3.0, 4.0, 1.0))
    assert Opinion.from_json(json.loads(json.dumps(shorter.as_json()))) == shorter


def test_many_graded_candidates_are_ranked_by_their_grades() -> None:
    o = graded([1, 5, 3, 5], forced_verdict=False)
    assert o.standing is not None
    assert (o.standing.winner, o.standing.ranks, o.standing.strengths) == (TIE, (4, 1, 3, 1), None)
    assert o.grades == (1.0, 5.0, 3.0, 5.0)
    assert Opinion.from_json(json.loads(json.dumps(o.as_json()))) == o


def test_a_candidate_without_a_grade_leaves_no_standing() -> None:
    o = graded([1, None, 3], forced_verdict=False)
    assert (o.standing, o.error, o.grades) == (None, ItemError.UNPARSEABLE, (1.0, None, 3.0))


def test_an_expected_grade_comes_from_the_probabilities() -> None:
    rubric = protocol("prompted", {"grades": 3})
    options = HearingOptions(mode=Mode.DIRECT, decide=Decide.SOFT)
    hearing = Hearing("rubric", "q", Comparison(QUESTION, ("x", "y")), rubric, options)
    for key, shares in zip(hearing.open_calls(), ((0.2, 0.2, 0.6), (0.5, 0.5, 0.0)), strict=True):
        logs = tuple((str(n), math.log(p) if p else -math.inf) for n, p in enumerate(shares, start=1))
        hearing.record(key, hearing.read(key, Completion("", FinishReason.LENGTH, 1, 0, 1, logs)))
    o = hearing.opinion()
    assert o.grades == (pytest.approx(2.4), pytest.approx(1.5))
    assert (o.winner, o.margin) == (A, pytest.approx(0.9))
