"""Jobs and heard items to build reports of."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from services.contract.reports import ReportedJob
from services.judging.opinion import Opinion
from services.reports.build import ItemRow
from services.vocabulary import Decide, ItemError, ItemStatus, JobStatus, Mode, Order, Orders, Winner

A, B, TIE = Winner.A, Winner.B, Winner.TIE
START = datetime(2026, 11, 29, 12, tzinfo=UTC)
Votes = Mapping[Order, Mapping[Winner, int]]


def job(**changes: Any) -> ReportedJob:
    """A finished job in direct mode."""
    facts: dict[str, Any] = {
        "id": "job_1",
        "name": "nightly",
        "status": JobStatus.COMPLETED,
        "judges": ("smollm2",),
        "mode": Mode.DIRECT,
        "orders": Orders.BOTH,
        "samples": 1,
        "decide": Decide.SOFT,
        "created_at": START,
        "started_at": START + timedelta(seconds=1),
        "ended_at": START + timedelta(seconds=11),
    }
    return ReportedJob(**facts | changes)


def votes(given: Winner, swapped: Winner) -> Votes:
    """One hard answer an order, in the item's frame."""
    return {Order.AB: {given: 1}, Order.BA: {swapped: 1}}


def opinion(**changes: Any) -> Opinion:
    """Of a judge that took the first slot both times."""
    said: dict[str, Any] = {
        "judge": "smollm2",
        "winner": A,
        "p_a": 0.6,
        "consistent": False,
        "error": None,
        "votes": votes(A, B),
        "first_slot": 2,
        "vote_entropy": 1.0,
        "valid": 2,
        "invalid": 0,
        "forced": 0,
        "without_p": 0,
        "flags": frozenset(),
        "calls": 2,
        "prompt_tokens": 100,
        "cached_tokens": 25,
        "completion_tokens": 2,
        "latency_s": 0.5,
    }
    return Opinion(**said | changes)


def row(seq: int, winner: Winner | None = A, said: Opinion | None = None, **changes: Any) -> ItemRow:
    """A heard item; without `said`, with an opinion that fits."""
    facts: dict[str, Any] = {
        "status": ItemStatus.SUCCEEDED,
        "error": None,
        "label": None,
        "cluster": None,
        "systems": (None, None),
        "calls": 2,
        "prompt_tokens": 100,
        "cached_tokens": 25,
        "completion_tokens": 2,
    }
    return ItemRow(seq=seq, winner=winner, opinion=said or opinion(winner=winner), **facts | changes)


def failed(seq: int, error: ItemError, **changes: Any) -> ItemRow:
    """An item without one valid call."""
    said = opinion(winner=None, p_a=None, consistent=None, error=error, votes={}, first_slot=0, valid=0, invalid=2)
    return row(seq, None, said, status=ItemStatus.FAILED, error=error, **changes)
