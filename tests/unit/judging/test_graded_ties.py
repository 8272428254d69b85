"""A judge that grades texts alone: within the margin two of them tie, however many there are."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.judging.hearing import Comparison, Hearing, HearingOptions
from services.judging.opinion import Opinion
from services.judging.protocol import Message
from services.judging.registry import protocol
from services.judging.runtime import Completion
from services.judging.standing import rank_grades
from services.vocabulary import FinishReason, Winner

RUBRIC = protocol("prompted", {"grades": 5})


def graded(grades: Sequence[int], tie_margin: float) -> Opinion:
    """The opinion on texts that come to these grades."""
    texts = tuple(f"text {number}" for number in range(len(grades)))
    options = HearingOptions(forced_verdict=False, tie_margin=tie_margin)
    hearing = Hearing("judge", "item", Comparison((Message("user", "Why?"),), texts), RUBRIC, options)
    for key in hearing.open_calls():
        (shown,) = hearing.seating(key).candidates
        completion = Completion(f"<score>{grades[shown]}</score>", FinishReason.STOP, 1, 0, 1)
        hearing.record(key, hearing.read(key, completion))
    return hearing.opinion()


@pytest.mark.parametrize(
    ("grades", "tie_margin", "winner", "ranks", "first_row"),
    [
        ((4, 3, 3), 0.0, 0, (1, 2, 2), (None, 0.625, 0.625)),
        ((4, 3, 3), 0.5, 0, (1, 2, 2), (None, 0.625, 0.625)),
        ((4, 3, 3), 1.0, Winner.TIE, (1, 1, 1), (None, 0.5, 0.5)),
        ((5, 4, 3), 1.0, Winner.TIE, (1, 1, 2), (None, 0.5, 0.75)),
        ((5, 3, 4), 1.0, Winner.TIE, (1, 2, 1), (None, 0.75, 0.5)),
        ((1, 3, 5), 1.0, 2, (3, 2, 1), (None, 0.25, 0.0)),
    ],
)
def test_the_margin_counts_between_several(
    grades: tuple[int, ...], tie_margin: float, winner: int, ranks: tuple[int, ...], first_row: tuple[float | None, ...]
) -> None:
    standing = graded(grades, tie_margin).standing
    assert standing is not None
    assert (standing.winner, standing.ranks, standing.matrix[0]) == (winner, ranks, first_row)


@given(st.lists(st.integers(1, 5), min_size=3, max_size=6), st.sampled_from([0.0, 0.4, 1.0, 1.5, 2.0]))
def test_two_texts_come_to_the_same_alone_and_among_others(grades: list[int], tie_margin: float) -> None:
    standing = graded(grades, tie_margin).standing
    assert standing is not None
    alone = graded(grades[:2], tie_margin)
    share = standing.matrix[0][1]
    assert share == (0.5 if alone.winner is Winner.TIE else pytest.approx(alone.p_a))


def test_adjusted_grades_keep_the_margin() -> None:
    standing = rank_grades((4, 3, 1), 1, 5, tie_margin=1 / 8)
    texts = ("a", "b", "c")
    assert standing.adjusted_by((), texts, (4, 3, 1), 1.0).winner is Winner.TIE
    assert standing.adjusted_by((), texts, (4, 3, 1)).winner == 0
