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
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from services.contract.webhooks import Callback, rfc3339
from services.vocabulary import Decide, JobKind, JobStatus, Mode, OnConflict, Orders

DEFAULT_DEADLINE = timedelta(days=7)
LONGEST_DEADLINE = timedelta(days=30)
MOST_CANDIDATES = 16
MOST_JUDGES = 8
LONGEST_PRINCIPLE = 16_384  # code points
MOST_INLINE_ITEMS = 10_000
MOST_UPLOADED_ITEMS = 1_000_000


def _plain(text: str) -> str:
    if any(character < " " or "\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("control characters and lone surrogates are not allowed")
    return text


def _prose(text: str) -> str:
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("NUL and lone surrogates are not allowed")
    return text


def _one_fault(what: str) -> WrapValidator:
    """For a choice of forms: what fits none of them is one fault, not one a form."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError(f"must be {what}") from None

    return WrapValidator(check)


def _number(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ValueError("must be a number")


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value
    raise ValueError("must be a string")


def _unequal(judges: list[str]) -> list[str]:
    if len(set(judges)) < len(judges):
        raise ValueError("a judge stands twice in the panel")
    return judges


def _pairs(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs of different candidates, each pair once."""
    if any(first == second for first, second in pairs):
        raise ValueError("a candidate cannot be compared with itself")
    if len({frozenset(pair) for pair in pairs}) < len(pairs):
        raise ValueError("a pair stands twice")
    return pairs


Name = Annotated[StrictStr, AfterValidator(_plain), Field(max_length=200)]
Number = BeforeValidator(_number)  # beside `float` and its bounds: no booleans, no numbers in strings
Index = Annotated[StrictInt, Field(ge=0, lt=MOST_CANDIDATES)]
PairList = Annotated[list[tuple[Index, Index]], Field(min_length=1, max_length=120), AfterValidator(_pairs)]
Pairs = Annotated[
    Literal["all", "circular"] | PairList,
    _one_fault('"all", "circular" or different pairs of different candidates, by their indices from 0 on'),
]
Moment = Annotated[AwareDatetime, BeforeValidator(_text)]
Instant = Annotated[datetime, PlainSerializer(rfc3339, when_used="json")]
Principle = Annotated[StrictStr, AfterValidator(_prose), Field(min_length=1, max_length=LONGEST_PRINCIPLE)]
PriorityName = Literal["interactive", "standard", "bulk"]
MarginName = Literal["blended", "nvidia"]
Weight = Annotated[float, Field(ge=0, le=1_000), Number]
PanelDecide = Literal["majority", "mean"]


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
    candidates: list[Candidate] = Field(min_length=2, max_length=MOST_CANDIDATES)
    label: Literal["A", "B", "tie"] | int | None = Field(
        default=None,
        description="a human's answer, for the report; of more than two candidates the best one's index, or \"tie\"",
    )
    cluster: str | None = Field(default=None, description="items of a cluster are not independent of each other")
    metadata: dict[str, Any] | None = Field(default=None, description="kept and given back as sent")


class SamplingOptions(Request):
    """Overrides of the model's own sampling."""

    temperature: Annotated[float, Field(ge=0, le=2), Number] | None = None
    top_p: Annotated[float, Field(gt=0, le=1), Number] | None = None
    top_k: Annotated[StrictInt, Field(ge=-1, le=1_000_000)] | None = Field(default=None, description="-1: off")
    max_tokens: Annotated[StrictInt, Field(ge=1, le=1_000_000)] | None = None


class StopAt(Request):
    """A sequential test's confidence: 1 less the chance that an item stops for a side that is not preferred."""

    confidence: Annotated[float, Field(gt=0.5, lt=1), Number]


EarlyStop = Annotated[
    Literal["never", "certain"] | StopAt,
    _one_fault('"never", "certain" or {"confidence": c} with c above 1/2 and below 1'),
]


class PanelOptions(Request):
    """How several judges' opinions become one verdict."""

    decide: PanelDecide | None = Field(default=None, description="default `majority`; `mean`: the mean of `p_a`")
    weights: dict[str, Annotated[float, Field(gt=0, le=1_000), Number]] | None = Field(
        default=None, description="by judge; 1 for those not named"
    )
    tie_margin: Annotated[float, Field(ge=0, lt=0.5), Number] | None = Field(default=None, description="default 0")


class LengthPolicy(Request):
    """Shorter is better, by how much: `services/judging/policies.py` has the formulas."""

    reasoning_bonus: Weight = 0.0
    answer_bonus: Weight = 0.0
    top_percentile: Annotated[float, Field(ge=0, le=1), Number] = 0.2
    reasoning_coefficient: Weight = 0.0
    answer_coefficient: Weight = 0.0


class StylePolicy(Request):
    """Plainer is better, by how much: headings, list items, bold and emoji count against a text."""

    coefficient: Weight = 0.0


class ScorePolicies(Request):
    """What adjusts the scores of more than two candidates: the length, then the style."""

    length: LengthPolicy | None = None
    style: StylePolicy | None = None


class JudgeOptions(Request):
    """How a judge hears. What is left out, or null, is the model's own default, else the one named here."""

    orders: Orders | None = Field(default=None, description="default `both`")
    samples: Annotated[StrictInt, Field(ge=1, le=16)] | None = Field(default=None, description="per order; default 1")
    early_stop: EarlyStop | None = Field(
        default=None,
        description="when an item of two candidates needs no more samples: `certain` (default; `never` in a panel that "
        "decides by the mean), when none could change its winner; a confidence, also when a sequential test finds the "
        "side that is preferred on the average of both orders. A stopped item keeps its winner, while its `p_a` comes "
        "out further from 1/2 than all samples would have put it",
    )
    mode: Mode | None = Field(default=None, description="default `reason`")
    decide: Decide | None = Field(
        default=None, description="default `soft` in direct mode, `scores` for families that give scores, else `vote`"
    )
    margin: MarginName | None = Field(
        default=None, description="how two scores and a ranking become one number; default `blended`"
    )
    principle: Principle | None = Field(default=None, description="what to judge by, for judges that take a principle")
    forced_verdict: StrictBool | None = Field(default=None, description="default true")
    on_conflict: OnConflict | None = Field(default=None, description="default `tie`")
    tie_margin: Annotated[float, Field(ge=0), Number] | None = Field(
        default=None, description="half the width of a tie: in `p_a`, or in score points where scores decide; default 0"
    )
    reading: Literal["strict", "seed"] | None = Field(default=None, description="default `strict`")
    sampling: SamplingOptions | None = None


class Options(JudgeOptions):
    """How a job is heard: by every judge alike, as far as it can."""

    pairs: Pairs | None = Field(default=None, description="which of more than two candidates meet; default `all`")
    score_policies: ScorePolicies | None = Field(
        default=None,
        description="adjust the grades of more than two candidates, or where there are none their scores, and so their "
        "ranks; for a single judge",
    )
    panel: PanelOptions | None = Field(default=None, description="for several judges")


class RereadOptions(Request):
    """What another reading of the same calls may change; what is left out, or null, is as in the job read again."""

    decide: Decide | None = None
    margin: MarginName | None = None
    forced_verdict: StrictBool | None = Field(default=None, description="false leaves the forced verdicts out")
    on_conflict: OnConflict | None = None
    tie_margin: Annotated[float, Field(ge=0), Number] | None = None
    reading: Literal["strict", "seed"] | None = None
    panel: PanelOptions | None = Field(default=None, description="for several judges; weights not named stay, too")


class RereadRequest(Request):
    """A job to make out of another one's traces."""

    name: Name | None = None
    metadata: dict[str, Any] | None = Field(default=None, description="kept and given back as sent; at most 16 KiB")
    options: RereadOptions | None = None
    callback: Callback | None = None


class JobRequest(Request):
    """A job to submit. The items of an upload are a part of their own."""

    kind: JobKind
    judges: Annotated[list[StrictStr], Field(min_length=1, max_length=MOST_JUDGES), AfterValidator(_unequal)] = Field(
        description="models of the fleet; several are a panel"
    )
    name: Name | None = None
    metadata: dict[str, Any] | None = Field(default=None, description="kept and given back as sent; at most 16 KiB")
    options: Options | None = None
    callback: Callback | None = None
    priority: PriorityName | None = Field(default=None, description="default `standard`")
    deadline: Moment | None = Field(default=None, description="default in 7 days, at most in 30")


class InlineJobRequest(JobRequest):
    """A job to submit together with its items."""

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


class Sampling(BaseModel):
    """Sampling as a job asks for it: null is the protocol's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float | None
    top_p: float | None
    top_k: int | None
    max_tokens: int | None


class JudgeSettings(BaseModel):
    """How one judge hears a job: every option with its default resolved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    orders: Orders
    samples: int
    early_stop: EarlyStop
    mode: Mode
    decide: Decide
    margin: MarginName
    pairs: Pairs
    principle: str | None
    score_policies: ScorePolicies | None
    forced_verdict: bool
    on_conflict: OnConflict
    tie_margin: float
    reading: Literal["strict", "seed"]
    sampling: Sampling


class PanelSettings(BaseModel):
    """How the judges' opinions become a verdict, every default resolved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decide: PanelDecide
    weights: dict[str, float]
    tie_margin: float


class JobSettings(BaseModel):
    """The options of a job with every default resolved; what `job.settings` holds. `panel` is null for one judge."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judges: dict[str, JudgeSettings]
    panel: PanelSettings | None


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
    reread_of: str | None = Field(description="the job whose traces this one reads again")
    judges: list[str]
    priority: PriorityName
    options: dict[str, JudgeSettings] = Field(description="by judge, every default resolved")
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
