"""Concluding what needs no runtime: the opinions of a panel become verdicts, and other kinds come to their results.

Guarantee: what is concluded changes no more once its chunk is queued, so whoever concludes it comes to the same. An
item on which nothing was said in time gets no verdict: it has expired.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, text

from services.jobs.choice import RANGE, SCORES, CommitteeScores
from services.jobs.choose import WRITTEN, what_it_took
from services.jobs.record import Batch
from services.jobs.rows import assessment_row, settled_row, verdict_row
from services.jobs.settle import settle_next
from services.judging.opinion import Opinion
from services.judging.panel import PanelRule, join
from services.vocabulary import JobKind, Stage

OPINIONS = text(
    f"""
    SELECT seq, body FROM opinion WHERE {RANGE}
    ORDER BY seq, array_position(cast(:judges AS text[]), judge)
    """
)
CHOSEN = text(f"SELECT * FROM assessment WHERE {RANGE} ORDER BY seq")


def conclude_next(engine: Engine, public_url: str) -> bool:
    """Conclude the next chunk whose stages have been worked off, or have no time left. False when there is none."""
    return settle_next(engine, Stage.CONCLUDE, _concluded, public_url)


def _concluded(connection: Connection, chunk: Mapping[str, Any]) -> Batch:
    match JobKind(chunk["kind"]):
        case JobKind.JUDGEMENT:
            return _joined(connection, chunk)
        case JobKind.REAPPRAISAL:
            return _compared(connection, chunk)
        case JobKind.SCORING:
            return _scored(connection, chunk)


def _joined(connection: Connection, chunk: Mapping[str, Any]) -> Batch:
    """The verdicts of a panel."""
    rule = PanelRule(**json.loads(chunk["settings"])["panel"])
    batch = Batch()
    for seq, rows in groupby(connection.execute(OPINIONS, dict(chunk)), key=lambda row: row.seq):
        opinions = [Opinion.from_json(row.body) for row in rows]
        given = {opinion.judge for opinion in opinions}
        missing = [judge for judge in chunk["judges"] if judge not in given]
        batch.verdicts.append(verdict_row(chunk["job_id"], seq, join(opinions, rule, missing)))
    return batch


def _compared(connection: Connection, chunk: Mapping[str, Any]) -> Batch:
    """What was chosen, and how it compares; one that was not compared in time says so."""
    batch, settings, where = Batch(), json.loads(chunk["settings"]), dict(chunk)
    written = {row["seq"]: row for row in connection.execute(WRITTEN, where).mappings()}
    scores: defaultdict[int, list[RowMapping]] = defaultdict(list)
    for row in connection.execute(SCORES, where).mappings():
        scores[row["seq"]].append(row)
    opinions = {row.seq: Opinion.from_json(row.body) for row in connection.execute(OPINIONS, where)}
    for row in connection.execute(CHOSEN, where).mappings():
        seq, opinion, error = row["seq"], opinions.get(row["seq"]), row["body"]["error"]
        if row["body"]["absent"]:
            continue  # members were not there in time
        missing = [settings["compare"]] if opinion is None and error is None else []
        spent = what_it_took([written[seq], *scores[seq]], opinion)
        batch.verdicts.append(settled_row(chunk["job_id"], seq, spent, error=error, opinion=opinion, missing=missing))
    return batch


def _scored(connection: Connection, chunk: Mapping[str, Any]) -> Batch:
    """A committee's scores of single texts."""
    batch = Batch()
    scores = CommitteeScores.load(connection, dict(chunk), json.loads(chunk["settings"])["committee"])
    for seq in scores.rows:
        choice = scores.choice(seq, [0])
        batch.assessments.append(assessment_row(chunk["job_id"], seq, choice.selected, choice.body()))
        if not choice.absent:
            batch.verdicts.append(settled_row(chunk["job_id"], seq, what_it_took(scores.of(seq)), error=choice.error))
    return batch
