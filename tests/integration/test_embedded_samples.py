"""`python -m embedded samples`, with few items: stopping early saves calls, and when certain it changes no winner."""

from collections.abc import Callable

import httpx
import pytest

from embedded.samples import Run, preferences, study, table
from tests.factories import MODEL
from tests.parts import Parts

ITEMS = 16


@pytest.mark.slow
def test_stopping_when_certain_saves_calls_and_changes_no_winner(parts: Parts, free_port: Callable[[], int]) -> None:
    preferred = preferences(ITEMS)
    parts.runtime()
    parts.maintenance()
    parts.worker()
    port = free_port()
    parts.api(port)
    key = {"Authorization": f"Bearer {parts.key()}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=key, timeout=30, trust_env=False) as client:
        runs = list(study(client, MODEL, parts.runtime_url, preferred))

    for most in (5, 9):
        never, certain, *confident = (run for run in runs if run.samples == most)
        assert (never.stop, never.calls, set(never.stopped.values())) == ("never", ITEMS * 2 * most, {None})
        assert never.winner[0] == "B", "the judge does not prefer what it was told to"
        assert never.winner[ITEMS - 1] == "A", "the judge does not prefer what it was told to"
        assert certain.differing(never) == certain.found == []
        assert certain.calls < never.calls
        assert certain.tokens < never.tokens
        for run in confident:
            assert run.calls <= certain.calls
            assert len(run.against(preferred)) <= ITEMS / 4
    assert any(run.found for run in runs)


def test_the_table_sets_each_run_against_the_full_hearing() -> None:
    full = Run(5, "never", 40, 400, {0: "A", 1: "tie", 2: "B"}, dict.fromkeys(range(3)))
    short = Run(5, "0.9", 30, 200, {0: "B", 1: "A", 2: "B"}, {0: "confident", 1: "confident", 2: "certain"})
    lines = list(table([full, short], [0.8, 0.6, 0.1]))
    assert lines[2:] == [
        "| 5 | never | 40 | 0.0% | 0.0% | 0 | 0 | 0 | 0 |",
        "| 5 | 0.9 | 30 | 25.0% | 50.0% | 2 | 1 | 2 | 1 (50.0%) |",
    ]


@pytest.mark.parametrize("items", [2, 10])
def test_preferences_are_spread_evenly_and_none_is_at_a_half(items: int) -> None:
    preferred = preferences(items)
    assert preferred == sorted(preferred)
    assert [1 - p for p in reversed(preferred)] == pytest.approx(preferred)
    assert all(0 < p < 1 and abs(p - 0.5) > 0.01 for p in preferred)
