"""What a reappraisal job writes down between its stages, insert-only, and the scores of scoring jobs.

Guarantee: one row a key, so a stage that is done for an item is never done again. A model's scores of an item all come
from the one epoch that their row names.
"""

from uuid import UUID

from sqlalchemy import ARRAY, Column, SmallInteger, Text
from sqlmodel import Field, SQLModel

from services.models.columns import jsonb, text


class Reappraisal(SQLModel, table=True):
    """What one model wrote for one item, all attempts. `texts` is a JSON list of `services.judging.writing.Text`.

    `flags` are the scenario's and those of all that was written.
    """

    job_id: UUID = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    texts: str = Field(sa_column=Column(Text, nullable=False))
    flags: list[str] = Field(sa_column=Column(ARRAY(Text), nullable=False, server_default="{}"))
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class Score(SQLModel, table=True):
    """What one model of a committee makes of an item's texts, in their order.

    `scores` are raw, null where the model gave none; `outcomes` say what each came to. A score rests on `valid` of the
    samples that were `asked` of its text. `flags` are those of the texts, their context and all readings.
    """

    job_id: UUID = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    model: str = Field(sa_column=Column(text().type, primary_key=True))
    epoch_id: UUID
    scores: list[float | None] = Field(sa_column=jsonb())
    outcomes: list[str] = Field(sa_column=jsonb())
    valid: list[int] = Field(sa_column=jsonb())
    asked: list[int] = Field(sa_column=jsonb())
    flags: list[str] = Field(sa_column=Column(ARRAY(Text), nullable=False, server_default="{}"))
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class Assessment(SQLModel, table=True):
    """A committee's word on an item: how it scores each text, and for reappraisals the one that is `selected`.

    `selected` is an index into all that was written. `body` is JSON of numbers and names alone.
    """

    job_id: UUID = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    selected: int | None = Field(default=None, sa_column=Column(SmallInteger, nullable=True))
    body: dict[str, object] = Field(sa_column=jsonb())


class AnchorTexts(SQLModel, table=True):
    """The texts that a committee's members are put on one scale by, as JSON.

    `sha256` is the set's own (`services.reappraisal.anchors.AnchorSet`), not that of the column.
    """

    __tablename__ = "anchor_texts"

    sha256: str = Field(sa_column=Column(text().type, primary_key=True))
    texts: str = Field(sa_column=Column(Text, nullable=False))


class AnchorScores(SQLModel, table=True):
    """What a runtime makes of a set of anchors in one epoch, measured once; null for an anchor that got no score.

    `scale` names the anchors and how the model hears (`services.jobs.committees.scale_of`).
    """

    __tablename__ = "anchor_scores"

    epoch_id: UUID = Field(primary_key=True, foreign_key="runtime_epoch.id")
    scale: str = Field(sa_column=Column(text().type, primary_key=True))
    scores: list[float | None] = Field(sa_column=jsonb())
