"""The report of a job on the wire.

Guarantee: every rate stands beside its count and its denominator; a rate over nothing is null, never 0.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from services.contract.jobs import Instant
from services.foundation.jsontext import escaped
from services.vocabulary import Decide, ItemError, JobStatus, Mode, Orders


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


class WinRate(ReportPart):
    """How often a side or a system wins; a tie counts as a half, failed items and abstentions do not count."""

    items: int
    wins: int
    ties: int
    losses: int
    rate: float | None
    clusters: int
    bootstrap: Interval | None = Field(description="the headline: percentile bootstrap over whole clusters")
    cluster_mean: float | None = Field(description="the mean of the clusters' own rates, the middle of `t`")
    t: Interval | None = Field(description="Student's t over cluster means, clusters - 1 degrees of freedom")
    wilson: Interval | None = Field(description="screening only: takes all items as independent")


class SystemWinRate(WinRate):
    """How often one system wins against the others that it was compared with."""

    system: str


class Agreement(ReportPart):
    """How often answers equal human labels. `base`: what the most frequent label alone would reach."""

    raw: Proportion
    base: Proportion
    kappa: float | None = Field(description="Cohen's; null where undefined")


class OrdersCompared(ReportPart):
    """The same labelled items three times: hard answers in one order, in the other, and the verdict out of both."""

    given: Agreement
    swapped: Agreement
    verdict: Agreement


class LabelAgreement(ReportPart):
    """Agreement with human labels. `verdict` is over the labelled items that have a winner or a tie."""

    labelled: int
    verdict: Agreement
    orders: OrdersCompared | None = Field(description="null unless items were heard in both orders")


class Position(ReportPart):
    """What answers owe to the order of the candidates. `consistent`: both orders agree; the flip rate is the rest."""

    first_slot: Proportion
    consistent: Proportion
    order_kappa: float | None


class Items(ReportPart):
    """What became of the items. `heard`: those with a verdict or an error. Ties and abstentions: of the succeeded."""

    total: int
    heard: int
    succeeded: Proportion
    failed: Proportion
    errors: Mapping[ItemError, int]
    ties: Proportion
    abstained: Proportion
    injection_suspected: Proportion
    conflicting: Proportion = Field(description="items where a completion held verdicts that disagree")


class Answers(ReportPart):
    """What became of the samples that were asked for: `valid` gave an answer, `forced` of those only when forced to."""

    valid: Proportion
    forced: Proportion | None = Field(description="null in direct mode, where nothing else is asked for")


class Usage(ReportPart):
    """What it took. `calls`: those that were sent. `cached`: prompt tokens that the runtime had in its prefix cache.

    Seconds are from start to end.
    """

    calls: int
    prompt_tokens: int
    cached: Proportion
    completion_tokens: int
    seconds: float | None
    calls_per_second: float | None


class ReportedJob(ReportPart):
    """The job that a report is about."""

    id: str
    name: str | None
    status: JobStatus
    judges: tuple[str, ...]
    mode: Mode
    orders: Orders
    samples: int
    decide: Decide
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant | None


class Note(ReportPart):
    """Something that a reader of the figures must know. `code` is stable."""

    code: str
    message: str


class Report(ReportPart):
    """The statistics of one job, over the items heard so far."""

    job: ReportedJob
    items: Items
    sides: Mapping[Literal["A", "B"], WinRate]
    systems: tuple[SystemWinRate, ...]
    labels: LabelAgreement | None
    position: Position
    answers: Answers
    usage: Usage
    notes: tuple[Note, ...]

    def json_text(self) -> str:
        """The report as JSON. Pydantic's own dump refuses lone surrogates, which a system's name may hold."""
        return escaped(self.model_dump(mode="json"))
