"""A claimed chunk's stored calls, replayed."""

import json
from types import SimpleNamespace
from typing import Any, cast

from services.contract.jobs import Options
from services.foundation.fleet import FleetModel
from services.jobs.claim import Docket
from services.jobs.docket import open_cases
from services.jobs.request import resolve
from services.judging.hearing import CallKey
from services.judging.judge import Judge
from services.judging.registry import protocol
from services.vocabulary import Order
from tests.factories import MODEL, comparisons

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
        **dict.fromkeys(("prompt_tokens", "cached_tokens", "completion_tokens", "label_logprobs", "latency_ms")),
    }


def test_a_call_that_this_version_would_not_ask_is_left_out() -> None:
    ab, ba = CallKey(0, Order.AB, 0, forced=False), CallKey(0, Order.BA, 0, forced=False)
    follow_up, third = CallKey(0, Order.AB, 0, forced=True), CallKey(0, Order.AB, 2, forced=False)
    elsewhere = CallKey(3, Order.AB, 0, forced=False)
    item = {"seq": 0, "custom_id": '"q0"', "input": json.dumps(comparisons(1)[0])}
    docket = cast(Docket, SimpleNamespace(items=[item], heard=list(map(stored, (ab, follow_up, third, elsewhere)))))
    judge = cast(Judge, SimpleNamespace(name=MODEL, protocol=FAMILY))
    (case,) = open_cases(SETTINGS.model_dump(mode="json"), judge, docket)
    assert case.hearing.open_calls() == [ba]
