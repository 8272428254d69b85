"""The docket: a claimed chunk's items as hearings, with what was heard before replayed into them.

Guarantee: a chunk that is claimed again goes on exactly where its last flush left it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping

from services.jobs.claim import Docket
from services.judging.heard import NO_ANSWER, Heard, unanswered
from services.judging.hearing import CallKey, Comparison, Hearing, HearingOptions
from services.judging.judge import Judge
from services.judging.pairings import Pairs
from services.judging.policies import POLICIES
from services.judging.protocol import Message
from services.judging.runtime import Completion
from services.vocabulary import Decide, FinishReason, Mode, OnConflict, Orders, Outcome


@dataclass(slots=True)
class Case:
    """One item being heard. `closed`: its opinion has been formed."""

    seq: int
    hearing: Hearing
    closed: bool = False


def hearing_options(settings: Mapping[str, Any]) -> HearingOptions:
    """The part of a judge's resolved settings that concerns hearings."""
    stop = settings["early_stop"]
    policies = settings["score_policies"] or {}
    pairs: Pairs = settings["pairs"]
    return HearingOptions(
        orders=Orders(settings["orders"]),
        samples=settings["samples"],
        early_stop=stop["confidence"] if isinstance(stop, dict) else stop,
        margin=settings["margin"],
        pairs=pairs if isinstance(pairs, str) else tuple((first, second) for first, second in pairs),
        principle=settings["principle"],
        policies=tuple(make(**policies[name]) for name, make in POLICIES.items() if policies.get(name)),
        mode=Mode(settings["mode"]),
        decide=Decide(settings["decide"]),
        forced_verdict=settings["forced_verdict"],
        on_conflict=OnConflict(settings["on_conflict"]),
        tie_margin=settings["tie_margin"],
        reading=settings["reading"],
    )


def open_cases(settings: Mapping[str, Any], judge: Judge, docket: Docket) -> list[Case]:
    """The chunk's open items as cases, in their order."""
    options = hearing_options(settings)
    cases = {}
    for row in docket.items:
        item = json.loads(row["input"], parse_int=str)  # in metadata they may be longer than Python reads as numbers
        hearing = Hearing(judge.name, json.loads(row["custom_id"]), comparison(item), judge.protocol, options)
        cases[row["seq"]] = Case(row["seq"], hearing)
    for row in docket.heard:
        if (case := cases.get(row["seq"])) is not None:
            key = CallKey.from_number(row["call"])
            if case.hearing.is_open(key):  # else an older version asked it, and this one would not
                case.hearing.record(key, replayed(case.hearing, key, row))
    return list(cases.values())


def comparison(item: Mapping[str, Any]) -> Comparison:
    """An item's context and its candidates, as given."""
    context = tuple(Message(turn["role"], turn["content"]) for turn in item["context"])
    return Comparison(context, tuple(candidate["content"] for candidate in item["candidates"]))


def replayed(hearing: Hearing, key: CallKey, row: RowMapping) -> Heard:
    """A stored call, read by the hearing: `row` is its trace."""
    outcome = Outcome(row["outcome"])
    if outcome in NO_ANSWER and row["completion"] is None:
        return unanswered(outcome)
    return hearing.read(
        key,
        Completion(
            text=json.loads(row["completion"]),
            finish_reason=FinishReason(row["finish_reason"]),
            prompt_tokens=row["prompt_tokens"],
            cached_tokens=row["cached_tokens"],
            completion_tokens=row["completion_tokens"],
            label_logprobs=tuple((row["label_logprobs"] or {}).items()),
            latency_s=None if row["latency_ms"] is None else row["latency_ms"] / 1000,
        ),
    )
