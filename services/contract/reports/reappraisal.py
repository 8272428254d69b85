"""The report of a reappraisal job."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from services.contract.reports.committee import CommitteeReport, MemberReport
from services.contract.reports.parts import (
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
from services.vocabulary import ItemError, JobKind, Outcome


class ReportedReappraisal(ReportedJob):
    """The reappraisal job that a report is about."""

    model: str = Field(description="what writes")
    candidates: int = Field(description="texts that are written for an item")
    gate_retries: int = Field(description="how often a text that does not pass the gate is written anew, at most")
    committee: str | None = Field(description="what chooses; null: the first text that passes the gate stands")
    compare: ReportedJudge | None = Field(description="what compares the chosen text with the item's baselines")
    pool: str | None = Field(description="the pool that the scenarios are drawn from")
    selected_on: tuple[str, ...] = Field(description="the pools on which what writes or chooses was itself selected")


class GateReport(ReportPart):
    """What the gate made of the texts that it saw: every attempt at every candidate is one, unless it came to none."""

    accepted: Proportion = Field(description="of these texts, those that passed")
    outcomes: Mapping[Outcome, int] = Field(description="of these texts")
    unwritten: Mapping[Outcome, int] = Field(
        description="the attempts that came to no text, by why: these failed before the gate, and are in no rate"
    )
    repeated: Proportion = Field(description="of these texts, those beyond a candidate's first attempt")
    none_passed: Proportion = Field(description="of the heard items that have such a text, those of which none passed")
    chosen: int = Field(description="items with a chosen text")
    sentences: float | None = Field(description="the mean number of sentences of the chosen texts")


class ChoosingMember(MemberReport):
    """One member of a committee that chooses."""

    favourite: Proportion = Field(
        description="of the items with a choice among several scored texts, those where the chosen one has this "
        "member's highest z, or shares it"
    )


class ChoosingCommittee(CommitteeReport):
    """A committee that chooses among an item's texts, and what it made of them."""

    members: tuple[ChoosingMember, ...]
    chosen: int = Field(description="chosen texts with a score")
    chosen_score: float | None = Field(
        description="the mean score of the chosen texts. Each is the maximum of the very scores that it was selected "
        "by, so this overestimates how good they are; `score` is the mean of all texts that could have been chosen"
    )


class BaselineWinRate(WinRate):
    """How often the chosen texts win against the baselines that one system wrote."""

    system: str | None = Field(description="null: baselines that name none")


class ComparisonReport(ReportPart):
    """How the chosen texts fare against their items' baselines; a pair is a chosen text and one baseline."""

    compared: Proportion = Field(
        description="of the items with a chosen text, those on which the judge has an answer or abstains"
    )
    late: int = Field(description="items with a chosen text on which the judge gave no opinion in time")
    errors: Mapping[ItemError, int] = Field(description="items whose comparison failed; they are in no rate")
    ties: Proportion = Field(description="of the pairs with an answer")
    abstained: Proportion = Field(description="of the pairs of compared items")
    injection_suspected: Proportion = Field(description="of the items that the judge heard")
    conflicting: Proportion = Field(description="of those, where a completion held verdicts that disagree")
    overall: WinRate = Field(description="against all baselines")
    baselines: tuple[BaselineWinRate, ...] = Field(
        description="by who wrote the baseline, the one beaten most often first"
    )
    judge: JudgeReport


class ReappraisalReport(BaseReport):
    """The statistics of one reappraisal job, over the items that have a result so far."""

    kind: Literal[JobKind.REAPPRAISAL]
    job: ReportedReappraisal
    items: ItemCounts
    gate: GateReport
    committee: ChoosingCommittee | None
    comparison: ComparisonReport | None = Field(description="null unless the job compares")
    usage: Usage
    notes: tuple[Note, ...]
