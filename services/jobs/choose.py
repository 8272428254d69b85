"""Choosing: of the texts that were written for an item, the one that its committee, or the gate alone, lets stand.

Guarantee: every item of a chosen chunk has an assessment, which says what was chosen, or why nothing is.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, text

from services.jobs.choice import RANGE, Choice, CommitteeScores, failure
from services.jobs.record import USAGE, Batch
from services.jobs.rows import assessment_row, settled_row
from services.jobs.settle import settle_next
from services.judging.opinion import PRECEDENCE, Opinion
from services.judging.proceeding import Spent
from services.vocabulary import ItemError, Outcome, Stage

WRITTEN = text(f"SELECT * FROM reappraisal WHERE {RANGE} ORDER BY seq")


def choose_next(engine: Engine, public_url: str) -> bool:
    """Choose for the next chunk whose texts are there and scored. False when there is none."""
    return settle_next(engine, Stage.CHOOSE, _chosen, public_url)


def _chosen(connection: Connection, chunk: Mapping[str, Any]) -> Batch:
    settings, batch = json.loads(chunk["settings"]), Batch()
    committee = settings["committee"]
    scores = CommitteeScores.load(connection, dict(chunk), committee) if committee else None
    for row in connection.execute(WRITTEN, dict(chunk)).mappings():
        written = json.loads(row["texts"])
        pool = [place for place, one in enumerate(written) if one["outcome"] == Outcome.ACCEPTED]
        if not pool:
            choice = Choice(None, scores.name if scores else None, pool, error=_not_accepted(written))
        else:
            choice = scores.choice(row["seq"], pool) if scores else Choice(pool[0], None, pool)
        batch.assessments.append(assessment_row(chunk["job_id"], row["seq"], choice.selected, choice.body()))
        if chunk["settles"] and not choice.absent:
            spent = what_it_took([row, *(scores.of(row["seq"]) if scores else ())])
            batch.verdicts.append(settled_row(chunk["job_id"], row["seq"], spent, error=choice.error))
    return batch


def what_it_took(rows: Iterable[Mapping[Any, Any]], opinion: Opinion | None = None) -> Spent:
    """What an item took in all its stages."""
    parts = [*rows, *([] if opinion is None else [{name: getattr(opinion, name) for name in USAGE}])]
    return Spent(*(sum(part[name] for part in parts) for name in USAGE))


def _not_accepted(written: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Why nothing that was written can be chosen: what another try may cure comes before what the gate says."""
    counted = Counter(Outcome(one["outcome"]) for one in written)
    told = ", ".join(f"{count} {outcome}" for outcome, count in counted.items())
    code = next((error for error, causes in PRECEDENCE if causes & counted.keys()), ItemError.GATED)
    gated = counted.keys() & {Outcome.EMPTY, Outcome.TOO_LONG}
    if gated and code in (ItemError.TRUNCATED, ItemError.UNPARSEABLE):
        code = ItemError.GATED
    return failure(code, f"no text was accepted: {told}")
