"""Jobs on the wire: what is submitted, and what is shown.

Guarantee: a request that validates asks only for what this version does; an unknown field is refused, never ignored.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    StrictStr,
)

from services.contract.items import Comparison, Response, Scenario
from services.contract.options import (
    JudgeSettings,
    Name,
    Options,
    PanelSettings,
    ReappraisalOptions,
    ReappraisalSettings,
    Request,
    RereadOptions,
    ScoringSettings,
)
from services.contract.webhooks import Callback, rfc3339
from services.vocabulary import ItemStatus, JobKind, JobStatus

DEFAULT_DEADLINE = timedelta(days=7)
LONGEST_DEADLINE = timedelta(days=30)
MOST_JUDGES = 8
MOST_INLINE_ITEMS = 10_000
MOST_UPLOADED_ITEMS = 1_000_000
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d", re.ASCII)
NOT_CLINICAL = (
    "Reappraisals are a research artefact for the study of reward modelling and emotion regulation. This is not a "
    "clinical or mental-health tool and must not be used as one."
)


def _written_out(value: Any) -> Any:
    """A number, or the digits of one, would be taken for seconds since 1970."""
    if isinstance(value, str) and MOMENT.match(value):
        return value
    raise ValueError("must be a date and a time with its zone, such as 2026-12-01T00:00:00Z")


def _unequal(judges: list[str]) -> list[str]:
    if len(set(judges)) < len(judges):
        raise ValueError("a judge stands twice in the panel")
    return judges


Moment = Annotated[AwareDatetime, BeforeValidator(_written_out)]
Instant = Annotated[datetime, PlainSerializer(rfc3339, when_used="json")]
PriorityName = Literal["interactive", "standard", "bulk"]


class RereadRequest(Request):
    """A job to make out of another one's traces."""

    name: Name | None = None
    metadata: dict[str, Any] | None = Field(default=None, description="kept and given back as sent; at most 16 KiB")
    options: RereadOptions | None = None
    callback: Callback | None = None


RetriedStatus = Literal[ItemStatus.FAILED, ItemStatus.EXPIRED, ItemStatus.CANCELLED]


class RetryRequest(Request):
    """Which items of an ended job to try again: those without an answer."""

    only: Annotated[list[RetriedStatus], Field(min_length=1)] | None = Field(
        default=None, description="what became of them; all three by default"
    )


class JobFields(Request):
    """What every job is submitted with."""

    kind: JobKind
    name: Name | None = None
    metadata: dict[str, Any] | None = Field(default=None, description="kept and given back as sent; at most 16 KiB")
    callback: Callback | None = None
    priority: PriorityName | None = Field(default=None, description="default `standard`")
    deadline: Moment | None = Field(default=None, description="default in 7 days, at most in 30")


class Judgement(JobFields):
    """A job that has judges compare candidates. The items of an upload are a part of their own."""

    kind: Literal[JobKind.JUDGEMENT]
    judges: Annotated[list[StrictStr], Field(min_length=1, max_length=MOST_JUDGES), AfterValidator(_unequal)] = Field(
        description="models of the fleet; several are a panel"
    )
    options: Options | None = None


class Reappraisal(JobFields):
    __doc__ = f"""A job that has a model write short cognitive reappraisals, and a committee choose among them.

    {NOT_CLINICAL}
    """

    kind: Literal[JobKind.REAPPRAISAL]
    model: StrictStr = Field(description="a model of the fleet that writes")
    options: ReappraisalOptions | None = None


class Scoring(JobFields):
    """A job that has a committee score texts."""

    kind: Literal[JobKind.SCORING]
    committee: StrictStr = Field(description="a committee of the fleet that normalises by reference")


KINDS: Mapping[JobKind, type[Judgement | Reappraisal | Scoring]] = {
    JobKind.JUDGEMENT: Judgement,
    JobKind.REAPPRAISAL: Reappraisal,
    JobKind.SCORING: Scoring,
}


class InlineJudgement(Judgement):
    """A judgement together with its items."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "judgement",
                    "judges": ["sdrm-4b"],
                    "name": "nightly",
                    "metadata": {"run": "42"},
                    "items": [
                        {
                            "custom_id": "q1",
                            "context": [{"role": "user", "content": "Name a prime number."}],
                            "candidates": [
                                {"content": "Seven.", "system": "ours"},
                                {"content": "Nine.", "system": "theirs"},
                            ],
                            "label": "A",
                        }
                    ],
                    "options": {"orders": "both", "mode": "reason"},
                    "callback": {"url": "https://example.org/hook", "events": ["job.completed"]},
                    "priority": "standard",
                }
            ]
        }
    )

    items: list[Comparison] = Field(min_length=1, max_length=MOST_INLINE_ITEMS)


class InlineReappraisal(Reappraisal):
    __doc__ = f"""A reappraisal job together with its items.

    {NOT_CLINICAL}
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "reappraisal",
                    "model": "reappraisal-4b",
                    "items": [
                        {
                            "custom_id": "s1",
                            "scenario": "My flatmates went to the cinema without asking me.",
                            "baseline": {"content": "They may have thought that you were busy.", "system": "plain"},
                            "cluster": "flatmates",
                        }
                    ],
                    "options": {"candidates": 4, "committee": "reappraisal", "compare": "llama-3.1-70b"},
                }
            ]
        }
    )

    items: list[Scenario] = Field(min_length=1, max_length=MOST_INLINE_ITEMS)


class InlineScoring(Scoring):
    """A scoring job together with its items."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "scoring",
                    "committee": "reappraisal",
                    "items": [
                        {
                            "custom_id": "t1",
                            "context": [{"role": "user", "content": "Name a prime number."}],
                            "response": "Seven.",
                            "system": "ours",
                        }
                    ],
                }
            ]
        }
    )

    items: list[Response] = Field(min_length=1, max_length=MOST_INLINE_ITEMS)


class JobRequest(RootModel[Annotated[Judgement | Reappraisal | Scoring, Field(discriminator="kind")]]):
    """A job to submit. The items of an upload are a part of their own."""


class InlineJobRequest(
    RootModel[Annotated[InlineJudgement | InlineReappraisal | InlineScoring, Field(discriminator="kind")]]
):
    """A job to submit together with its items."""


class Counts(BaseModel):
    """Items by where they stand: the other six always sum to `total`."""

    total: int
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int


class TokenUsage(BaseModel):
    """What was spent."""

    calls: int
    prompt_tokens: int
    cached_tokens: int = Field(
        description="of the prompt tokens, those that the runtime said it had in its cache; classifiers say nothing of "
        "it, and add nothing here"
    )
    completion_tokens: int


class Progress(BaseModel):
    """How fast a job goes: items per second since it started, and when it ends at this rate (null: not known yet)."""

    done: int
    per_second: float | None
    eta: Instant | None


class Job(BaseModel):
    """A job as it stands. `version` grows with every change that ends or starts something."""

    id: str = Field(examples=["job_0199f2a4c1d87e0f9a3b5c6d7e8f9012"])
    kind: JobKind
    status: JobStatus
    name: str | None
    reread_of: str | None = Field(description="the job whose traces this one reads again; null once that is deleted")
    retry_of: str | None = Field(description="the job whose items this one tries again; null once that is deleted")
    judges: list[str] = Field(description="of a judgement, its judges; of a reappraisal, the judge that compares")
    model: str | None = Field(description="what writes the reappraisals; null for other kinds")
    committee: str | None = Field(description="the committee that chooses or scores")
    priority: PriorityName
    options: dict[str, JudgeSettings] | ReappraisalSettings | ScoringSettings = Field(
        description="every default resolved; of a judgement by judge"
    )
    panel: PanelSettings | None = Field(description="how several judges' opinions become one verdict")
    counts: Counts
    usage: TokenUsage
    progress: Progress
    version: int
    created_at: Instant
    started_at: Instant | None
    cancelling_at: Instant | None
    ended_at: Instant | None
    deadline: Instant
    callback: Callback | None
    metadata: dict[str, Any] = Field(description="as sent")


class JobPage(BaseModel):
    """A page of jobs, newest first. `next` is the `after` of the page that follows, null on the last."""

    data: list[Job]
    has_more: bool
    next: str | None
