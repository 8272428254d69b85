"""A claimed chunk's stored calls, replayed."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import RowMapping

from services.contract.options import Options
from services.foundation.fleet import FleetModel
from services.jobs.docket import Case, replay, replayed
from services.jobs.hear import open_cases
from services.jobs.options import resolve
from services.judging.hearing import Comparison, Hearing, HearingOptions
from services.judging.judge import Judge
from services.judging.proceeding import CallKey
from services.judging.protocol import Message
from services.judging.registry import protocol
from services.judging.writing import Writing
from services.vocabulary import Order
from tests.factories import MODEL, comparisons

NOW = datetime(2026, 11, 29, tzinfo=UTC)
FAMILY = protocol("sdrm", {})
SETTINGS = resolve(Options(), FleetModel(name=MODEL, protocol="sdrm", weights="nowhere"), FAMILY)


def stored(key: CallKey) -> dict[str, Any]:
    """The trace of a call that says A."""
    return {
        "seq": 0,
        "call": key.number,
        "outcome": "decided",
        "completion": json.dumps("<verdict>A</verdict>"),
        "finish_reason": "stop",
        "sent_at": NOW,
        **dict.fromkeys(("prompt_tokens", "cached_tokens", "completion_tokens", "label_logprobs", "latency_ms")),
    }


@pytest.mark.parametrize(
    ("outcome", "sent_at"), [("failed", NOW), ("failed", None), ("aborted", NOW), ("context_overflow", None)]
)
def test_a_stored_call_without_an_answer_was_sent_if_it_was(outcome: str, sent_at: datetime | None) -> None:
    writing = Writing(protocol("reappraisal"), "I was laughed at.", 1, 0)
    key = CallKey(0, Order.AB, 0, forced=False)
    row = cast(RowMapping, stored(key) | {"outcome": outcome, "completion": None, "sent_at": sent_at})
    heard = replayed(writing, key, row)
    assert (heard.outcome, heard.sent) == (outcome, sent_at is not None)


def test_what_was_asked_after_other_calls_is_not_asked_again() -> None:
    """A judge that grades two texts stops where no sample can change the winner: later ones are opened by earlier."""
    rubric = protocol("prompted", {"grades": 5})
    two = Comparison((Message("user", "Which is kinder?"),), ("It is not about you.", "Hm."))
    live, again = (Hearing(MODEL, "q0", two, rubric, HearingOptions(samples=6, forced_verdict=False)) for _ in range(2))
    rows = []
    while (keys := live.open_calls()) and len(rows) < 10:
        for key in keys:
            row = stored(key) | {"completion": json.dumps(f"<score>{3 + key.sample % 2}</score>")}
            live.record(key, replayed(live, key, cast(RowMapping, row)))
            rows.append(row)
    assert (len(rows), live.ended) == (10, False)
    by_number = sorted(rows, key=lambda row: row["call"])
    (case,) = replay([Case(0, again)], cast(Sequence[RowMapping], by_number))
    assert case.proceeding.open_calls() == live.open_calls()


def test_a_call_that_this_version_would_not_ask_is_left_out() -> None:
    ab, ba = CallKey(0, Order.AB, 0, forced=False), CallKey(0, Order.BA, 0, forced=False)
    follow_up, third = CallKey(0, Order.AB, 0, forced=True), CallKey(0, Order.AB, 2, forced=False)
    elsewhere = CallKey(3, Order.AB, 0, forced=False)
    item = {"seq": 0, "custom_id": '"q0"', "input": json.dumps(comparisons(1)[0])}
    items = cast(Sequence[RowMapping], [item])
    heard = cast(Sequence[RowMapping], list(map(stored, (ab, follow_up, third, elsewhere))))
    judge = cast(Judge, SimpleNamespace(name=MODEL, protocol=FAMILY))
    (case,) = open_cases(SETTINGS.model_dump(mode="json"), judge, items, heard)
    assert case.proceeding.open_calls() == [ba]
