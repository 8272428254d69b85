"""The report of a scoring job."""

from typing import Literal

from pydantic import Field

from services.contract.reports.committee import CommitteeReport
from services.contract.reports.parts import BaseReport, ItemCounts, MeanScore, Note, Proportion, ReportedJob, Usage
from services.vocabulary import JobKind


class ReportedScoring(ReportedJob):
    """The scoring job that a report is about."""

    committee: str


class SystemScore(MeanScore):
    """How a committee scores the texts that one system wrote."""

    system: str | None = Field(description="null: texts that name none")
    scored: Proportion = Field(
        description="of the heard texts, those that every member scored: the means are over these"
    )
    disagreement: float | None = Field(description="the mean over texts of the std of the members' z")


class ScoringReport(BaseReport):
    """The statistics of one scoring job, over the items that have a result so far."""

    kind: Literal[JobKind.SCORING]
    job: ReportedScoring
    items: ItemCounts
    committee: CommitteeReport
    systems: tuple[SystemScore, ...] = Field(description="the highest mean first")
    usage: Usage
    notes: tuple[Note, ...]
