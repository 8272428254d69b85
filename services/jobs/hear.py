"""Hearing: judges on the candidates of a judgement, and a judge that compares a chosen reappraisal with its baselines.

Guarantee: an item of which this judge has an opinion is not heard again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, text

from services.jobs.claim import Claim
from services.jobs.docket import Case, heard_before, places, replay
from services.jobs.items import baselines
from services.jobs.reappraise import asked_about
from services.jobs.record import Batch
from services.jobs.rows import opinion_row, verdict_row
from services.judging.hearing import Comparison, Hearing, HearingOptions
from services.judging.judge import Judge, overridden
from services.judging.pairings import Pairs
from services.judging.panel import single
from services.judging.policies import POLICIES
from services.judging.protocol import messages
from services.judging.runtime import Sampling
from services.vocabulary import Decide, Mode, OnConflict, Orders

UNHEARD = """
    item.job_id = :job_id AND item.seq >= :first_seq AND item.seq < :end_seq AND NOT EXISTS (
        SELECT 1 FROM opinion
        WHERE opinion.job_id = item.job_id AND opinion.seq = item.seq AND opinion.judge = :model
    )
"""
ITEMS = text(f"SELECT item.seq, item.custom_id, item.input FROM item WHERE {UNHEARD} ORDER BY item.seq")
CHOSEN = text(
    f"""
    SELECT item.seq, item.custom_id, item.input, reappraisal.texts, assessment.selected
    FROM item JOIN assessment ON assessment.job_id = item.job_id AND assessment.seq = item.seq
    JOIN reappraisal ON reappraisal.job_id = item.job_id AND reappraisal.seq = item.seq
    WHERE assessment.selected IS NOT NULL AND {UNHEARD}
    ORDER BY item.seq
    """
)


class Hear:
    """The stage in which the judges of a judgement are asked. See Brief."""

    whole = False

    def sampling(self, settings: Mapping[str, Any], judge: Judge) -> Sampling:
        """See Brief."""
        return overridden(judge.sampling, settings["judges"][judge.name]["sampling"])

    def open(
        self, connection: Connection, held: Claim, settings: Mapping[str, Any], judge: Judge
    ) -> list[Case[Hearing]]:
        """See Brief."""
        heard = heard_before(connection, held)
        return open_cases(settings["judges"][judge.name], judge, unheard(connection, held), heard)

    def close(self, held: Claim, case: Case[Hearing], epoch_id: UUID, batch: Batch) -> None:  # noqa: ARG002 - as Brief has it
        """See Brief."""
        opinion = case.proceeding.opinion()
        batch.opinions.append(opinion_row(held.job_id, case.seq, opinion))
        if held.settles:
            batch.verdicts.append(verdict_row(held.job_id, case.seq, single(opinion)))


class Compare(Hear):
    """The stage in which a judge compares what was chosen with an item's baselines. See Brief."""

    def open(
        self, connection: Connection, held: Claim, settings: Mapping[str, Any], judge: Judge
    ) -> list[Case[Hearing]]:
        """See Brief. The chosen text is the first candidate; it meets each of the baselines."""
        options = hearing_options(settings["judges"][judge.name])
        cases = []
        for row in connection.execute(CHOSEN, places(held)).mappings():
            item = _parsed(row["input"])
            against = [text if isinstance(text, str) else text["content"] for _, text in baselines(item)]
            pairs: Pairs = "all" if len(against) == 1 else tuple((0, other) for other in range(1, 1 + len(against)))
            chosen = json.loads(row["texts"])[row["selected"]]["text"]
            compared = Comparison(asked_about(item["scenario"]), (chosen, *against))
            custom_id = json.loads(row["custom_id"])
            hearing = Hearing(judge.name, custom_id, compared, judge.protocol, replace(options, pairs=pairs))
            cases.append(Case(row["seq"], hearing))
        return replay(cases, heard_before(connection, held))


def unheard(connection: Connection, held: Claim) -> Sequence[RowMapping]:
    """The chunk's items of which this judge has no opinion yet."""
    return connection.execute(ITEMS, places(held)).mappings().all()


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


def open_cases(
    settings: Mapping[str, Any], judge: Judge, items: Sequence[RowMapping], heard: Sequence[RowMapping]
) -> list[Case[Hearing]]:
    """A judgement's open items as hearings, in their order, with what was heard of them."""
    options = hearing_options(settings)
    cases = []
    for row in items:
        compared, custom_id = comparison(_parsed(row["input"])), json.loads(row["custom_id"])
        cases.append(Case(row["seq"], Hearing(judge.name, custom_id, compared, judge.protocol, options)))
    return replay(cases, heard)


def comparison(item: Mapping[str, Any]) -> Comparison:
    """An item's context and its candidates, as given."""
    return Comparison(messages(item["context"]), tuple(candidate["content"] for candidate in item["candidates"]))


def _parsed(item: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(
        item, parse_int=str
    )  # in metadata they may be longer than Python reads as numbers
    return parsed
