"""Agreement and position figures, against values worked out by hand."""

import numpy as np
import pytest

from services.stats.agreement import agreement, kappa
from services.stats.position import position

# rows: the rater's A, tie, B; columns: the reference's


def test_kappa_corrects_raw_agreement_for_chance() -> None:
    # 35 of 50 agree; chance gives 0.6 * 0.5 + 0.4 * 0.5 = 0.5, so kappa is (0.7 - 0.5) / (1 - 0.5)
    result = agreement(np.array([[20, 0, 10], [0, 0, 0], [5, 0, 15]]))
    assert (result.raw.count, result.raw.n, result.raw.rate) == (35, 50, 0.7)
    assert (result.base.count, result.base.rate) == (25, 0.5)
    assert result.kappa == pytest.approx(0.4)


def test_a_rater_who_always_says_the_same_agrees_at_the_base_rate_and_not_beyond_chance() -> None:
    result = agreement(np.array([[18, 0, 14], [0, 0, 0], [0, 0, 0]]))
    assert (result.raw.rate, result.base.rate) == (18 / 32, 18 / 32)
    assert result.kappa == 0


def test_perfect_agreement_over_three_answers() -> None:
    assert kappa(np.diag([3, 2, 4])) == pytest.approx(1)


def test_kappa_is_undefined_when_only_one_answer_occurs() -> None:
    assert kappa(np.array([[16, 0, 0], [0, 0, 0], [0, 0, 0]])) is None


def test_nothing_rated_is_none_throughout() -> None:
    result = agreement(np.zeros((3, 3), dtype=np.int64))
    assert (result.raw.rate, result.base.rate, result.kappa) == (None, None, None)


def test_a_judge_that_always_takes_the_first_slot_contradicts_itself_on_every_item() -> None:
    # the first slot holds A in the given order and B in the swapped one
    result = position(first_slot=64, sided=64, orders=np.array([[0, 0, 32], [0, 0, 0], [0, 0, 0]]))
    assert result.first_slot.rate == 1
    assert (result.consistent.count, result.consistent.n) == (0, 32)
    assert result.order_kappa == 0


def test_a_judge_that_looks_at_the_content_answers_alike_in_both_orders() -> None:
    result = position(first_slot=30, sided=60, orders=np.diag([15, 0, 15]))
    assert result.first_slot.rate == 0.5
    assert (result.consistent.rate, result.order_kappa) == (1, pytest.approx(1))


def test_without_both_orders_there_is_no_consistency_to_count() -> None:
    result = position(first_slot=5, sided=9, orders=np.zeros((3, 3), dtype=np.int64))
    assert result.first_slot.n == 9
    assert (result.consistent.rate, result.order_kappa) == (None, None)
