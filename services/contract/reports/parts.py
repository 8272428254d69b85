"""What the reports of all kinds of jobs are made of.

Guarantee: every rate stands beside its count and its denominator; a rate over nothing is null, never 0.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from services.contract.jobs import Instant
from services.contract.options import StopAt
from services.foundation.jsontext import escaped
from services.vocabulary import Decide, ItemError, JobStatus, Mode, Orders, Outcome


class ReportPart(BaseModel):
    """The base of everything in a report."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)


class Interval(ReportPart):
    """A two-sided 95 % interval."""

    low: float
    high: float


class Proportion(ReportPart):
    """`count` of `n`. Wilson's interval takes the n as independent: a screening figure."""

    count: int
    n: int
    rate: float | None
    wilson: Interval | None


class OverClusters(ReportPart):
    """How sure a mean is when items of one cluster are not independent of each other."""

    clusters: int
    bootstrap: Interval | None = Field(description="the headline: percentile bootstrap over whole clusters")
    cluster_mean: float | None = Field(description="the mean of the clusters' own means, the middle of `t`")
    t: Interval | None = Field(description="Student's t over cluster means, clusters - 1 degrees of freedom")


class WinRate(OverClusters):
    """How often a side or a system wins; a tie counts as a half, failed items and abstentions do not count."""

    pairs: int = Field(description="wins, ties and losses; an item of two candidates is one pair")
    wins: int
    ties: int
    losses: int
    rate: float | None
    wilson: Interval | None = Field(description="screening only: takes all items as independent")


class MeanScore(OverClusters):
    """The mean score of texts; each item has one."""

    texts: int
    mean: float | None


class Accuracy(ReportPart):
    """How often answers equal human labels. `base`: what the most frequent label alone would reach."""

    raw: Proportion
    base: Proportion


class Agreement(Accuracy):
    """How often answers equal human labels, and how far beyond chance."""

    kappa: float | None = Field(description="Cohen's; null where undefined")


class OrdersCompared(ReportPart):
    """The same labelled items three times: hard answers in one order, in the other, and the opinion out of both."""

    given: Agreement
    swapped: Agreement
    both: Agreement


class JudgeLabels(ReportPart):
    """Agreement of one judge's opinions with human labels, over the labelled items where it has a winner or a tie."""

    opinion: Agreement = Field(description="of items with two candidates")
    orders: OrdersCompared | None = Field(description="null unless items were heard in both orders")
    best: Accuracy | None = Field(
        description="of items with more: those whose winner is the labelled candidate; null when none is labelled"
    )


class Position(ReportPart):
    """What answers owe to the order of the candidates, over all pairs.

    `consistent`: pairs whose two orders agree; the flip rate is the rest.
    """

    first_slot: Proportion
    consistent: Proportion
    order_kappa: float | None


class ItemCounts(ReportPart):
    """What became of the items. `heard`: those with a result or an error."""

    total: int
    heard: int
    succeeded: Proportion
    failed: Proportion
    errors: Mapping[ItemError, int]
    injection_suspected: Proportion


class Answers(ReportPart):
    """What became of the samples that were asked for: `valid` gave an answer, `forced` of those only when forced to.

    `outcomes` counts every sample once: an outage, a truncation and an unreadable reply are no answers, and no ties.
    """

    valid: Proportion
    forced: Proportion | None = Field(description="null in direct mode, where nothing else is asked for")
    outcomes: Mapping[Outcome, int]


class StoppedEarly(ReportPart):
    """Items of two candidates that needed fewer samples than the job allows, of those that the judge heard."""

    certain: Proportion = Field(description="no further answer could have changed the winner")
    confident: Proportion = Field(description="the sequential test had found the preferred side")


class SystemGrade(ReportPart):
    """The mean grade, in the judge's own grades, of the candidates that one system wrote."""

    system: str
    mean: float
    candidates: int


class Spent(ReportPart):
    """What it took. `calls`: those that were sent."""

    calls: int
    prompt_tokens: int
    cached: Proportion = Field(
        description="prompt tokens that the runtime had in its prefix cache, of those of which it told; those that a "
        "classifier read are not among these"
    )
    completion_tokens: int


class Usage(Spent):
    """What the job took. Seconds are from start to end."""

    seconds: float | None
    calls_per_second: float | None


class JudgeReport(ReportPart):
    """What one judge did, by its own opinions."""

    name: str
    answered: Proportion = Field(description="of the heard items, those on which it has an answer or abstains")
    agrees: Proportion | None = Field(
        description="of the items on which it and the panel have a winner or a tie, those where it is the same; null "
        "for the only judge"
    )
    labels: JudgeLabels | None
    position: Position
    answers: Answers
    stopped_early: StoppedEarly | None = Field(description="null when one sample was asked for")
    grades: tuple[SystemGrade, ...] = Field(description="empty where the judge grades none or no system is named")
    usage: Spent = Field(description="of this job alone: nothing where it reads another one's traces again")


class ReportedJudge(ReportPart):
    """A judge of the job, and how it hears."""

    name: str
    mode: Mode
    orders: Orders
    samples: int = Field(description="per order, at most")
    decide: Decide
    early_stop: Literal["never", "certain"] | StopAt


class ReportedJob(ReportPart):
    """The job that a report is about."""

    id: str
    name: str | None
    status: JobStatus
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant | None


class Note(ReportPart):
    """Something that a reader of the figures must know. `code` is stable; `judge` names the one that it is about."""

    code: str
    judge: str | None
    message: str


class BaseReport(ReportPart):
    """A whole report."""

    def json_text(self) -> str:
        """The report as JSON. Pydantic's own dump refuses lone surrogates, which a system's name may hold."""
        return escaped(self.model_dump(mode="json"))
