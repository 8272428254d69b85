"""The concluder: it goes on while there is something to settle, but never for long."""

from typing import cast

import pytest
from sqlalchemy import Engine

from services.foundation.fleet import Fleet
from workers.maintenance import concluder
from workers.maintenance.concluder import AT_ONCE, Concluder
from workers.maintenance.metrics import MaintenanceMetrics


@pytest.mark.parametrize(
    ("choices", "conclusions", "rereads", "begun"),
    [(0, 0, 0, 1), (0, 3, 0, 4), (0, 0, 5, 6), (2, 0, 0, 3), (0, 9, 9, 4), (9, 9, 9, 3)],
)
def test_it_ends_when_there_is_nothing_or_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, choices: int, conclusions: int, rereads: int, begun: int
) -> None:
    clock, left, seen = 0.0, {"choose": choices, "conclude": conclusions, "reread": rereads}, []

    def settle(kind: str) -> bool:
        nonlocal clock
        seen.append(kind)
        left[kind] -= 1
        clock += AT_ONCE / 8 if left[kind] >= 0 else 0
        return left[kind] >= 0

    monkeypatch.setattr(concluder, "choose_next", lambda *_: settle("choose"))
    monkeypatch.setattr(concluder, "conclude_next", lambda *_: settle("conclude"))
    monkeypatch.setattr(concluder, "reread_next", lambda *_: settle("reread"))
    monkeypatch.setattr(concluder.time, "monotonic", lambda: clock)
    chore = Concluder(cast(Engine, None), Fleet(models={}), "http://assizes.test", MaintenanceMetrics())
    chore._settle()
    assert seen == ["choose", "conclude", "reread"] * begun
