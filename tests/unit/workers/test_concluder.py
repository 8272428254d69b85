"""The concluder: it goes on while there is something to settle, but never for long."""

from typing import cast

import pytest
from sqlalchemy import Engine

from services.foundation.fleet import Fleet
from workers.maintenance import concluder
from workers.maintenance.concluder import AT_ONCE, Concluder


@pytest.mark.parametrize(
    ("joins", "rereads", "begun"),
    [(0, 0, 1), (3, 0, 4), (0, 5, 6), (9, 9, 4)],
)
def test_it_ends_when_there_is_nothing_or_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, joins: int, rereads: int, begun: int
) -> None:
    clock, left, seen = 0.0, {"join": joins, "reread": rereads}, []

    def settle(kind: str) -> bool:
        nonlocal clock
        seen.append(kind)
        left[kind] -= 1
        clock += AT_ONCE / 8 if left[kind] >= 0 else 0
        return left[kind] >= 0

    monkeypatch.setattr(concluder, "join_next", lambda *_: settle("join"))
    monkeypatch.setattr(concluder, "reread_next", lambda *_: settle("reread"))
    monkeypatch.setattr(concluder.time, "monotonic", lambda: clock)
    chore = Concluder(cast(Engine, None), Fleet(models={}), "http://assizes.test")
    chore._settle()
    assert seen == ["join", "reread"] * begun
