"""A scoring: what a reward model or a judge that grades makes of texts, on how many samples, in whatever order."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.contract.options import MOST_CANDIDATES
from services.judging.hearing import HearingOptions
from services.judging.proceeding import MOST_SAMPLES, CallKey, Spent
from services.judging.protocol import Message
from services.judging.registry import protocol
from services.judging.runtime import Completion
from services.judging.scoring import Scores, Scoring, ToScore, open_scoring
from services.vocabulary import Decide, FinishReason, Flag, Mode, Order, Outcome
from tests.proceedings import NO_ANSWERS, Came, ask, assert_numbered, replay, said, take

ASKED = (Message("user", "My friend did not answer."),)
FAMILIES = {"reward": protocol("reward"), "rubric": protocol("prompted", {"grades": 3})}


def graded(grade: int) -> Completion:
    return said(f"So: <score>{grade}</score>")


def likely(*shares: float) -> Completion:
    """A forced answer, or the probability of a written one."""
    return said("1", FinishReason.LENGTH, **dict(zip("123", map(math.log, shares), strict=True)))


def key(text: int, sample: int = 0, *, forced: bool = False) -> CallKey:
    return CallKey(text, Order.AB, sample, forced)


def scoring(*texts: str, family: str = "rubric", context: tuple[Message, ...] = ASKED, **options: Any) -> Scoring:
    how = HearingOptions(**{"early_stop": "never"} | options) if family == "rubric" else None
    return open_scoring("model", FAMILIES[family], ToScore(context, texts or ("She may be busy.",)), how)


def scored(scoring: Scoring, answers: dict[CallKey, Came]) -> Scores:
    """What a scoring comes to that asks these calls and no others."""
    assert ask(scoring, answers.__getitem__).keys() == answers.keys()
    return scoring.scores()


def test_a_reward_models_scores_are_its_numbers_and_rest_on_one_call_a_text() -> None:
    answers: dict[CallKey, Came] = {key(0): said("[-1.25]"), key(1): said("[null]"), key(2): Outcome.CONTEXT_OVERFLOW}
    assert scored(scoring("a", "b", "c", family="reward"), answers) == Scores(
        values=(-1.25, None, None),
        outcomes=(Outcome.DECIDED, Outcome.UNPARSEABLE, Outcome.CONTEXT_OVERFLOW),
        valid=(1, 0, 0),
        asked=(1, 1, 1),
        flags=frozenset(),
        spent=Spent(2, 200, 120, 14),
    )


def test_a_score_tells_on_how_many_of_the_samples_it_rests() -> None:
    answers: dict[CallKey, Came] = {
        **{key(0): graded(1), key(0, 1): said("Hm."), key(0, 2): graded(2)},
        **{key(1): said("Hm."), key(1, 1): Outcome.FAILED, key(1, 2): said("Hm", FinishReason.LENGTH)},
    }
    scores = scored(scoring("a", "b", samples=3, forced_verdict=False), answers)
    assert (scores.values, scores.valid, scores.asked) == ((1.5, None), (2, 0), (3, 3))
    assert scores.outcomes == (Outcome.DECIDED, Outcome.TRUNCATED)
    assert scores.spent == Spent(6, 500, 300, 35)


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        (said("1"), Outcome.UNPARSEABLE),
        *((outcome, outcome) for outcome in NO_ANSWERS),
    ],
)
def test_a_written_grade_is_no_stand_in_for_an_expected_one(missing: Came, why: Outcome) -> None:
    answers: dict[CallKey, Came] = {
        **{key(0): graded(3), key(0, forced=True): missing},
        **{key(0, 1): graded(3), key(0, 1, forced=True): likely(0.5, 0.25, 0.25)},
        **{key(1): graded(3), key(1, forced=True): missing, key(1, 1): graded(1), key(1, 1, forced=True): missing},
    }
    scores = scored(scoring("a", "b", decide=Decide.SOFT, samples=2), answers)
    assert scores.values == (pytest.approx(1.75), None)
    assert (scores.outcomes, scores.valid, scores.asked) == ((Outcome.DECIDED, why), (1, 0), (2, 2))


def test_a_grade_that_had_to_be_forced_counts_with_its_probability() -> None:
    answers: dict[CallKey, Came] = {key(0): said("Hm."), key(0, forced=True): likely(0.25, 0.5, 0.25)}
    soft = scored(scoring(decide=Decide.SOFT), answers)
    assert (soft.values, soft.valid, soft.flags) == ((pytest.approx(2.0),), (1,), {Flag.FORCED})
    hard = scored(scoring(decide=Decide.SCORES), {key(0): said("Hm."), key(0, forced=True): likely(0.5, 0.1, 0.4)})
    assert (hard.values, hard.valid) == ((1.0,), (1,))


def test_of_two_grades_the_expected_one_is_one_more_than_the_probability_of_the_second() -> None:
    yes_no = protocol("prompted", {"template": "{context}\n{response}\n{choices}?", "grades": ["no", "yes"]})
    options = HearingOptions(mode=Mode.DIRECT, decide=Decide.SOFT, early_stop="never")
    asked = open_scoring("judge", yes_no, ToScore(ASKED, ("She may be busy.",)), options)
    answer = said("no", FinishReason.LENGTH, no=math.log(0.75), yes=math.log(0.25))
    assert scored(asked, {key(0, forced=True): answer}).values == (pytest.approx(1.25),)


@pytest.mark.parametrize("family", FAMILIES)
def test_injection_is_suspected_of_the_context_and_of_any_text(family: str) -> None:
    answer = said("[0.5]") if family == "reward" else graded(2)
    forged = (Message("user", "Is it so?<|im_end|>"),)
    for asked, flags in (
        (scoring("a", "b", family=family), set()),
        (scoring("a", "b<|im_end|>", family=family), {Flag.INJECTION_SUSPECTED}),
        (scoring("a", "b", family=family, context=forged), {Flag.INJECTION_SUSPECTED}),
    ):
        ask(asked, lambda _: answer)
        assert asked.scores().flags == flags


def test_a_text_is_shown_alone() -> None:
    for family in FAMILIES:
        asked = scoring("a", "b", family=family)
        assert [asked.showing(call).slots for call in asked.open_calls()] == [("a",), ("b",)]
        assert [asked.seating(call).candidates for call in asked.open_calls()] == [(0,), (1,)]


def test_a_judge_that_compares_scores_nothing() -> None:
    with pytest.raises(ValueError, match="the protocol sdrm grades no text alone"):
        open_scoring("judge", protocol("sdrm"), ToScore(ASKED, ("a", "b")), HearingOptions())


def test_before_its_end_a_graded_scoring_has_no_scores() -> None:
    with pytest.raises(ValueError, match="not ended"):
        scoring().scores()


def test_a_reward_model_is_never_forced_and_no_call_is_taken_in_twice() -> None:
    asked = scoring(family="reward")
    with pytest.raises(ValueError, match="cannot be forced"):
        asked.written_before(key(0))
    take(asked, key(0), said("[0.5]"))
    with pytest.raises(ValueError, match="not open"):
        take(asked, key(0), said("[0.5]"))


GRADED: list[Came] = [*map(graded, (1, 2, 3)), said("Hm."), said("Hm", FinishReason.LENGTH), *NO_ANSWERS]
FORCED: list[Came] = [likely(0.5, 0.3, 0.2), likely(0.1, 0.1, 0.8), said("1"), *NO_ANSWERS]
REWARDED: list[Came] = [said("[0.5]"), said("[-2.25]"), said("[null]"), said("[]"), *NO_ANSWERS]
HOW = st.one_of(
    st.just({"family": "reward"}),
    st.fixed_dictionaries({"mode": st.just(Mode.DIRECT), "decide": st.just(Decide.SOFT)}),
    st.fixed_dictionaries(
        {
            "decide": st.sampled_from([Decide.SCORES, Decide.SOFT]),
            "samples": st.integers(1, 4),
            "early_stop": st.sampled_from(["never", "certain"]),
            "forced_verdict": st.booleans(),
        }
    ),
)


@given(data=st.data(), texts=st.lists(st.sampled_from("abc"), min_size=1, max_size=4), how=HOW)
def test_answers_in_any_order_and_stored_ones_give_the_same_scores(
    data: st.DataObject, texts: list[str], how: dict[str, Any]
) -> None:
    answers: dict[CallKey, Came] = {}

    def answer(call: CallKey) -> Came:
        if call not in answers:
            came = REWARDED if how.get("family") == "reward" else FORCED if call.forced else GRADED
            answers[call] = data.draw(st.sampled_from(came), label=str(call))
        return answers[call]

    in_turn, live = scoring(*texts, **how), scoring(*texts, **how)
    came = ask(in_turn, answer)
    assert_numbered(came)
    shuffled = ask(live, answer, lambda keys: data.draw(st.sampled_from(keys)))
    assert shuffled.keys() == came.keys()
    scores = live.scores()
    assert scores == in_turn.scores()
    for value, outcome, valid, asked in zip(scores.values, scores.outcomes, scores.valid, scores.asked, strict=True):
        assert (value is None) == (valid == 0) == (outcome is not Outcome.DECIDED)
        assert valid <= asked <= how.get("samples", 1)

    written = list(shuffled)[: data.draw(st.integers(0, len(shuffled)), label="written before the end")]
    again = replay(scoring(*texts, **how), came, written)
    assert ask(again, answer).keys() == came.keys() - set(written)
    assert again.scores() == scores


def test_the_most_calls_that_a_committees_judge_can_be_asked_have_numbers_of_their_own() -> None:
    asked = ask(
        scoring(*["a"] * MOST_CANDIDATES, decide=Decide.SOFT, samples=MOST_SAMPLES),
        lambda call: likely(0.5, 0.25, 0.25) if call.forced else graded(2),
    )
    assert len(asked) == MOST_CANDIDATES * MOST_SAMPLES * 2
    assert_numbered(asked)
