"""The report of a judgement."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from services.contract.reports.parts import (
    Accuracy,
    Agreement,
    BaseReport,
    ItemCounts,
    JudgeReport,
    Note,
    Proportion,
    ReportedJob,
    ReportedJudge,
    ReportPart,
    Usage,
    WinRate,
)
from services.vocabulary import JobKind


class SystemWinRate(WinRate):
    """How often one system wins against the others that it was compared with.

    An item with more than two candidates counts with each of its pairs that has an answer: by the pair's own winner
    for a single judge that compares, else by the matrix. A pair on which a single judge abstains has none.
    """

    system: str


class LabelAgreement(ReportPart):
    """Agreement of the verdicts with human labels, over the labelled items that have a winner or a tie."""

    labelled: int
    verdict: Agreement = Field(description="of items with two candidates")
    best: Accuracy | None = Field(
        description="of items with more: those whose winner is the labelled candidate; null when none is labelled"
    )


class Items(ItemCounts):
    """What became of the items. Ties and abstentions: of the succeeded."""

    ties: Proportion
    abstained: Proportion
    conflicting: Proportion = Field(description="items where a completion held verdicts that disagree")


class Panel(ReportPart):
    """How far the judges of a panel agree. `disagreement` and `unanimous`: over the items that several answered."""

    disagreement: float | None = Field(
        description="mean chance that two judges, drawn by weight, differ in their winner"
    )
    unanimous: Proportion
    partial: Proportion = Field(description="of the succeeded items, those on which not every judge has an answer")


class ReportedJudgement(ReportedJob):
    """The judgement that a report is about."""

    judges: tuple[ReportedJudge, ...]
    reread_of: str | None = Field(description="the job whose traces this one reads again: it asks no runtime itself")


class JudgementReport(BaseReport):
    """The statistics of one judgement, over the items heard so far. `sides` are those of items with two candidates."""

    kind: Literal[JobKind.JUDGEMENT]
    job: ReportedJudgement
    items: Items
    sides: Mapping[Literal["A", "B"], WinRate]
    systems: tuple[SystemWinRate, ...]
    labels: LabelAgreement | None
    panel: Panel | None = Field(description="null for one judge")
    judges: tuple[JudgeReport, ...]
    usage: Usage
    notes: tuple[Note, ...]
