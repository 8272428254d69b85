"""Jobs on the wire: what is submitted, what is shown, and the options with every default resolved.

Guarantee: a request that validates asks only for what this version does; an unknown field is refused, never ignored.
"""

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
    StrictBool,
    StrictInt,
    StrictStr,
)

from services.contract.webhooks import Callback, rfc3339
from services.vocabulary import Decide, JobKind, JobStatus, Mode, OnConflict, Orders

DEFAULT_DEADLINE = timedelta(days=7)
LONGEST_DEADLINE = timedelta(days=30)
MOST_INLINE_ITEMS = 10_000
MOST_UPLOADED_ITEMS = 1_000_000


def _plain(text: str) -> str:
    if any(character < " " or "\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("control characters and lone surrogates are not allowed")
    return text


def _number(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ValueError("must be a number")


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value
    raise ValueError("must be a string")


def _not_yet(value: Any) -> Any:
    if value is None:
        return value
    raise ValueError("samples cannot stop early in this version: every sample is heard, and only null is accepted")


Name = Annotated[StrictStr, AfterValidator(_plain), Field(max_length=200)]
Number = Annotated[float, BeforeValidator(_number)]
NotYet = Annotated[None, BeforeValidator(_not_yet)]
Moment = Annotated[AwareDatetime, BeforeValidator(_text)]
Instant = Annotated[datetime, PlainSerializer(rfc3339, when_used="json")]
PriorityName = Literal["interactive", "standard", "bulk"]


class Request(BaseModel):
    """The base of what callers send."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Message(Request):
    """One turn of a context."""

    role: Literal["user", "assistant"]
    content: str = Field(description="not blank")


class Candidate(Request):
    """One of the texts to compare."""

    content: str = Field(description="may be empty")
    system: str | None = Field(default=None, description="who wrote it; reports count wins by system")


class Comparison(Request):
    """An item of a judgement: also one line of an upload."""

    custom_id: str = Field(min_length=1, max_length=512, description="unique in the job")
    context: list[Message] = Field(min_length=1, description="alternates, starts and ends with `user`")
    candidates: list[Candidate] = Field(min_length=2, max_length=2)
    label: Literal["A", "B", "tie"] | None = Field(default=None, description="a human's answer, for the report")
    cluster: str | None = Field(default=None, description="items of a cluster are not independent of each other")
    metadata: dict[str, Any] | None = Field(default=None, description="kept and given back as sent")


class SamplingOptions(Request):
    """Overrides of the model's own sampling."""

    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    top_k: Annotated[StrictInt, Field(ge=-1, le=1_000_000)] | None = Field(default=None, description="-1: off")
    max_tokens: Annotated[StrictInt, Field(ge=1, le=1_000_000)] | None = None


class Options(Request):
    """How a job is heard. What is left out, or null, is the model's own default, else the one named here."""

    orders: Orders | None = Field(default=None, description="default `both`")
    samples: Annotated[StrictInt, Field(ge=1, le=16)] | None = Field(default=None, description="per order; default 1")
    mode: Mode | None = Field(default=None, description="default `reason`")
    decide: Decide | None = Field(default=None, description="default `soft` in direct mode, `vote` else")
    forced_verdict: StrictBool | None = Field(default=None, description="default true")
    early_stop: NotYet = Field(default=None, description="null alone: every sample is heard")
    on_conflict: OnConflict | None = Field(default=None, description="default `tie`")
    tie_margin: Annotated[Number, Field(ge=0, lt=0.5)] | None = Field(default=None, description="default 0")
    reading: Literal["strict", "seed"] | None = Field(default=None, description="default `strict`")
    sampling: SamplingOptions | None = None


class JobRequest(Request):
    """A job to submit. The items of an upload are a part of their own."""

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

    kind: JobKind
    judges: Annotated[list[StrictStr], Field(min_length=1, max_length=1)] = Field(description="one model of the fleet")
    name: Name | None = None
    metadata: dict[str, Any] | None = Field(default=None, description="kept and given back as sent; at most 16 KiB")
    options: Options | None = None
    callback: Callback | None = None
    priority: PriorityName | None = Field(default=None, description="default `standard`")
    deadline: Moment | None = Field(default=None, description="default in 7 days, at most in 30")


class InlineJobRequest(JobRequest):
    """A job to submit together with its items."""

    items: list[Comparison] = Field(min_length=1, max_length=MOST_INLINE_ITEMS)


class Sampling(BaseModel):
    """Sampling as a job asks for it: null is the protocol's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float | None
    top_p: float | None
    top_k: int | None
    max_tokens: int | None


class JobSettings(BaseModel):
    """The options of a job with every default resolved; what `job.settings` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    orders: Orders
    samples: int
    mode: Mode
    decide: Decide
    forced_verdict: bool
    early_stop: None = None
    on_conflict: OnConflict
    tie_margin: float
    reading: Literal["strict", "seed"]
    sampling: Sampling

    @property
    def calls_per_item(self) -> int:
        """Calls of a hearing, follow-ups of one token not counted."""
        return self.samples * (2 if self.orders is Orders.BOTH else 1)


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
    cached_tokens: int = Field(description="of the prompt tokens, those the runtime had in its cache")
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
    judges: list[str]
    priority: PriorityName
    options: JobSettings
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
