"""Scoring: one model of a committee scores the texts of each item.

Guarantee: an item's scores all come from one epoch of the model, since they are written together or not at all. Before
a model's first scores in an epoch its scores of the committee's anchors are there, measured once.
"""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from services.jobs.claim import Claim
from services.jobs.docket import Case, places
from services.jobs.hear import hearing_options
from services.jobs.reappraise import asked_about
from services.jobs.record import Batch
from services.jobs.rows import scores_row
from services.judging.judge import Judge, overridden
from services.judging.protocol import messages
from services.judging.runtime import Sampling
from services.judging.scoring import Scoring, ToScore, open_scoring
from services.vocabulary import Outcome

ITEMS = text(
    """
    SELECT item.seq, item.input, reappraisal.texts
    FROM item LEFT JOIN reappraisal ON reappraisal.job_id = item.job_id AND reappraisal.seq = item.seq
    WHERE item.job_id = :job_id AND item.seq >= :first_seq AND item.seq < :end_seq AND NOT EXISTS (
        SELECT 1 FROM score WHERE score.job_id = item.job_id AND score.seq = item.seq AND score.model = :model
    )
    ORDER BY item.seq
    """
)


class Score:
    """The stage in which a committee's models are asked. See Brief."""

    whole = True

    def sampling(self, settings: Mapping[str, Any], judge: Judge) -> Sampling:
        """See Brief."""
        graded = settings["committee"]["judges"].get(judge.name)
        return judge.sampling if graded is None else overridden(judge.sampling, graded["sampling"])

    def open(
        self, connection: Connection, held: Claim, settings: Mapping[str, Any], judge: Judge
    ) -> list[Case[Scoring]]:
        """See Brief."""
        rows = connection.execute(ITEMS, places(held))
        return [Case(row.seq, scoring(judge, settings["committee"], _texts(row.input, row.texts))) for row in rows]

    def close(self, held: Claim, case: Case[Scoring], epoch_id: UUID, batch: Batch) -> None:
        """See Brief."""
        batch.scores.append(scores_row(held.job_id, case.seq, held.model, epoch_id, case.proceeding.scores()))


def scoring(judge: Judge, committee: Mapping[str, Any], scored: ToScore) -> Scoring:
    """The scoring of these texts by a model of a job's committee."""
    graded = committee["judges"].get(judge.name)
    return open_scoring(judge.name, judge.protocol, scored, None if graded is None else hearing_options(graded))


def _texts(sent: str, written: str | None) -> ToScore:
    """What there is to score of an item: its response, or what was written for it and passed the gate."""
    item = json.loads(sent, parse_int=str)
    if written is None:
        return ToScore(messages(item["context"]), (item["response"],))
    accepted = tuple(one["text"] for one in json.loads(written) if one["outcome"] == Outcome.ACCEPTED)
    return ToScore(asked_about(item["scenario"]), accepted)
