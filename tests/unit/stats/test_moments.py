"""Moments that come in bit by bit are those of all values together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from services.stats.moments import Moments

values = st.floats(-1e3, 1e3, allow_subnormal=False)
batches = st.lists(st.integers(1, 6).flatmap(lambda n: arrays(np.float64, (n, 3), elements=values)), min_size=1)


@given(batches)
def test_the_moments_are_those_of_all_values_together(parts: list[np.ndarray]) -> None:
    moments = Moments(3)
    for part in parts:
        moments.add(part)
    every = np.concatenate(parts)
    assert moments.count == len(every)
    for quantity in range(3):
        assert moments.mean(quantity) == pytest.approx(every[:, quantity].mean(), abs=1e-9)
        if len(every) > 1:
            assert moments.std(quantity) == pytest.approx(every[:, quantity].std(), abs=1e-6)
    if every[:, 0].std() > 1e-3 and every[:, 1].std() > 1e-3:
        assert moments.correlation(0, 1) == pytest.approx(np.corrcoef(every[:, 0], every[:, 1])[0, 1], abs=1e-6)


def test_spread_survives_a_mean_that_is_far_greater() -> None:
    moments = Moments(1)
    for value in (1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16):
        moments.add(np.array([[value]]))
    assert moments.std(0) == pytest.approx(np.sqrt(22.5))


def test_moments_over_nothing_are_none() -> None:
    moments = Moments(2)
    assert (moments.count, moments.mean(0), moments.std(0), moments.correlation(0, 1)) == (0, None, None, None)


def test_a_single_value_has_no_spread() -> None:
    moments = Moments(2)
    moments.add(np.array([[1.0, 2.0]]))
    assert (moments.mean(0), moments.std(0), moments.correlation(0, 1)) == (1.0, None, None)


def test_a_quantity_that_does_not_vary_has_no_correlation() -> None:
    moments = Moments(2)
    for value in (1.0, 2.0, 4.0):
        moments.add(np.array([[value, 0.1], [value + 1, 0.1], [value + 2, 0.1]]))
    assert moments.std(1) == 0
    assert moments.correlation(0, 1) is None
    assert moments.correlation(0, 0) == 1
