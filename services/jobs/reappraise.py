"""Reappraising: a model writes the candidates of each scenario.

Guarantee: what was written for an item is kept whole, gated texts among them, and is not written again.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from services.jobs.claim import Claim
from services.jobs.docket import Case, heard_before, places, replay
from services.jobs.record import Batch
from services.jobs.rows import written_row
from services.judging.judge import Judge, overridden
from services.judging.protocol import Family, Message, Showing
from services.judging.registry import protocol
from services.judging.runtime import Sampling
from services.judging.writing import Writing

ITEMS = text(
    """
    SELECT item.seq, item.input FROM item
    WHERE item.job_id = :job_id AND item.seq >= :first_seq AND item.seq < :end_seq AND NOT EXISTS (
        SELECT 1 FROM reappraisal WHERE reappraisal.job_id = item.job_id AND reappraisal.seq = item.seq
    )
    ORDER BY item.seq
    """
)


class Reappraise:
    """The stage in which a model writes. See Brief."""

    whole = False

    def sampling(self, settings: Mapping[str, Any], judge: Judge) -> Sampling:
        """See Brief."""
        return overridden(judge.sampling, settings["sampling"])

    def open(
        self, connection: Connection, held: Claim, settings: Mapping[str, Any], judge: Judge
    ) -> list[Case[Writing]]:
        """See Brief."""
        wanted = settings["candidates"], settings["gate_retries"]
        cases = [
            Case(row.seq, Writing(judge.protocol, json.loads(row.input, parse_int=str)["scenario"], *wanted))
            for row in connection.execute(ITEMS, places(held))
        ]
        return replay(cases, heard_before(connection, held))

    def close(self, held: Claim, case: Case[Writing], epoch_id: UUID, batch: Batch) -> None:  # noqa: ARG002 - as Brief has it
        """See Brief."""
        batch.reappraisals.append(written_row(held.job_id, case.seq, case.proceeding.written()))


def asked_about(scenario: str) -> tuple[Message, ...]:
    """What a reappraisal answers, for those who judge it: the published user turn about its scenario."""
    *_, turn = _published().messages(Showing((Message("user", scenario),), ()))
    return (turn,)


@cache
def _published() -> Family:
    return protocol("reappraisal")
