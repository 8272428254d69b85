"""Jobs and heard items to build reports of."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from services.contract.reports.judgement import ReportedJudgement
from services.contract.reports.parts import ReportedJudge
from services.judging.opinion import Opinion
from services.judging.standing import Pairwise, Standing, rank_pairs
from services.judging.weighing import side
from services.reports.item import ItemRow
from services.vocabulary import Decide, ItemError, ItemStatus, JobStatus, Mode, Order, Orders, Outcome, Winner

A, B, TIE = Winner.A, Winner.B, Winner.TIE
START = datetime(2026, 11, 29, 12, tzinfo=UTC)
Votes = Mapping[Order, Mapping[Winner, int]]


def judge(name: str = "smollm2", **changes: Any) -> ReportedJudge:
    """A judge in direct mode."""
    ways: dict[str, Any] = {
        "mode": Mode.DIRECT,
        "orders": Orders.BOTH,
        "samples": 1,
        "decide": Decide.SOFT,
        "early_stop": "certain",
    }
    return ReportedJudge(name=name, **ways | changes)


def job(*judges: ReportedJudge, **changes: Any) -> ReportedJudgement:
    """A finished job, of one judge unless some are given."""
    facts: dict[str, Any] = {
        "id": "job_1",
        "name": "nightly",
        "status": JobStatus.COMPLETED,
        "judges": judges or (judge(),),
        "created_at": START,
        "started_at": START + timedelta(seconds=1),
        "ended_at": START + timedelta(seconds=11),
        "reread_of": None,
    }
    return ReportedJudgement(**facts | changes)


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
        "vote_entropy": 1.0,
        "margin": None,
        "ranking": None,
        "stopped": None,
        "standing": None,
        "pairs": (),
        "grades": None,
        "first_slot": 2,
        "valid": 2,
        "invalid": 0,
        "forced": 0,
        "without_p": 0,
        "outcomes": {Outcome.DECIDED: 2},
        "flags": frozenset(),
        "calls": 2,
        "prompt_tokens": 100,
        "cached_tokens": 25,
        "completion_tokens": 2,
        "latency_s": 0.5,
    }
    return Opinion(**said | changes)


def silent(error: ItemError, outcome: Outcome = Outcome.TRUNCATED, **changes: Any) -> Opinion:
    """Of a judge that gave no valid answer."""
    nothing = {"winner": None, "p_a": None, "consistent": None, "votes": {}, "vote_entropy": None, "first_slot": 0}
    return opinion(**nothing | {"error": error, "valid": 0, "invalid": 2, "outcomes": {outcome: 2}} | changes)


def row(seq: int, winner: Winner | None = A, *opinions: Opinion, **changes: Any) -> ItemRow:
    """A heard item with two candidates; unless opinions are given, with one that fits."""
    facts: dict[str, Any] = {
        "status": ItemStatus.SUCCEEDED,
        "winner": winner,
        "standing": None,
        "disagreement": None,
        "error": None,
        "label": None,
        "cluster": None,
        "systems": (None, None),
        "opinions": opinions or (opinion(winner=winner),),
        "calls": 2,
        "prompt_tokens": 100,
        "cached_tokens": 25,
        "completion_tokens": 2,
    }
    return ItemRow(seq=seq, **facts | changes)


def failed(seq: int, error: ItemError, *opinions: Opinion, **changes: Any) -> ItemRow:
    """An item without one valid call."""
    return row(seq, None, *(opinions or (silent(error),)), status=ItemStatus.FAILED, error=error, **changes)


def standing(candidates: int, shares: Mapping[tuple[int, int], float]) -> Standing:
    """What the pairs' shares make of so many candidates."""
    ranked = rank_pairs([(first, second, p, 2.0) for (first, second), p in shares.items()], candidates)
    assert ranked is not None
    return ranked


def ranking(
    shares: Mapping[tuple[int, int], float], answers: Sequence[Votes], candidates: int, **changes: Any
) -> Opinion:
    """Of a judge that heard these pairs; `answers` are the votes on each."""
    pairs = [
        Pairwise(first, second, winner=side(p), p=p, consistent=None, error=None, votes=said)
        for ((first, second), p), said in zip(shares.items(), answers, strict=True)
    ]
    none = {"winner": None, "p_a": None, "consistent": None, "votes": {}, "vote_entropy": None}
    return opinion(**none | {"standing": standing(candidates, shares), "pairs": tuple(pairs)} | changes)


def ranked(seq: int, reached: Standing, *opinions: Opinion, **changes: Any) -> ItemRow:
    """A heard item with as many candidates as stand in `reached`; unless opinions are given, with one that fits."""
    facts = {"standing": reached, "systems": (None,) * len(reached.ranks)}
    fits = opinion(winner=None, p_a=None, consistent=None, votes={}, first_slot=0, standing=reached)
    return replace(row(seq, None, *(opinions or (fits,)), **facts | changes), winner=reached.winner)
