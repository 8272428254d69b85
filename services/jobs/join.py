"""Joining: the opinions of a panel become verdicts.

Guarantee: what is joined changes no more once its chunk is queued, so whoever joins it comes to the same verdicts. An
item on which no judge gave an opinion before the deadline gets none.
"""

import json
from itertools import groupby

from sqlalchemy import Connection, Engine, RowMapping, text

from services.jobs.record import Batch
from services.jobs.rows import verdict_row
from services.jobs.settle import settle_next
from services.judging.opinion import Opinion
from services.judging.panel import PanelRule, join
from services.vocabulary import Stage

OPINIONS = text(
    """
    SELECT seq, body FROM opinion
    WHERE job_id = :job_id AND seq >= :first_seq AND seq < :end_seq
    ORDER BY seq, array_position(cast(:judges AS text[]), judge)
    """
)


def join_next(engine: Engine, public_url: str) -> bool:
    """Conclude the next chunk whose judges have been heard, or have no time left. False when there is none."""
    return settle_next(engine, Stage.CONCLUDE, _joined, public_url)


def _joined(connection: Connection, chunk: RowMapping) -> Batch:
    rule = PanelRule(**json.loads(chunk["settings"])["panel"])
    places = {name: chunk[name] for name in ("job_id", "first_seq", "end_seq", "judges")}
    batch = Batch()
    for seq, rows in groupby(connection.execute(OPINIONS, places), key=lambda row: row.seq):
        opinions = [Opinion.from_json(row.body) for row in rows]
        given = {opinion.judge for opinion in opinions}
        missing = [judge for judge in chunk["judges"] if judge not in given]
        batch.verdicts.append(verdict_row(chunk["job_id"], seq, join(opinions, rule, missing)))
    return batch
