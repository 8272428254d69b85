"""How a job is heard: the options that callers give, and the settings that come of them.

Guarantee: options that validate ask only for what this version does; an unknown field is refused, never ignored. In
settings every default is resolved: nothing that changes later changes a job.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from services.vocabulary import Decide, JobKind, Mode, OnConflict, Orders

MOST_CANDIDATES = 16
MOST_RETRIES = 8
LONGEST_PRINCIPLE = 16_384  # code points


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
Principle = Annotated[StrictStr, AfterValidator(_prose), Field(min_length=1, max_length=LONGEST_PRINCIPLE)]
MarginName = Literal["blended", "nvidia"]
Weight = Annotated[float, Field(ge=0, le=1_000), Number]
PanelDecide = Literal["majority", "mean"]


class Request(BaseModel):
    """The base of what callers send."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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
        default=None,
        description="half the width of a tie: in `p_a`, or in score points where scores decide or grades do; default 0",
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


class ReappraisalOptions(Request):
    """How a scenario is reappraised. What is left out, or null, is what is named here."""

    candidates: Annotated[StrictInt, Field(ge=1, le=MOST_CANDIDATES)] | None = Field(
        default=None, description="texts that are written for an item; default 1"
    )
    gate_retries: Annotated[StrictInt, Field(ge=0, le=MOST_RETRIES)] | None = Field(
        default=None,
        description="how often a text that does not pass the gate is written anew; default 2, and 0 at temperature 0, "
        "where it would come out the same",
    )
    sampling: SamplingOptions | None = None
    committee: StrictStr | None = Field(
        default=None, description="a committee of the fleet, which chooses; without one the first accepted text stands"
    )
    compare: StrictStr | None = Field(
        default=None, description="a judge of the fleet, which compares the chosen text with each item's baselines"
    )
    compare_options: JudgeOptions | None = Field(default=None, description="how that judge hears")
    pool: Name | None = Field(default=None, description="the pool that the scenarios are drawn from, for the report")
    selected_on: Annotated[list[Name], Field(max_length=16)] | None = Field(
        default=None,
        description="the pools on which what writes or chooses here was itself selected: a comparison on one of them "
        "flatters it, and the report says so",
    )


class Sampling(BaseModel):
    """How a job's texts are drawn. Null, in jobs that an earlier version took: what the model's protocol has."""

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
    """The options of a judgement with every default resolved. `panel` is null for one judge."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judges: dict[str, JudgeSettings]
    panel: PanelSettings | None


class CommitteeSettings(BaseModel):
    """A committee as it was when the job was submitted.

    `members` names the models of each member, several where it is an ensemble. `judges`: how those hear that are judges
    and no reward models. `anchors` is the SHA-256 of the texts that `reference` normalises by.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    members: dict[str, list[str]]
    judges: dict[str, JudgeSettings]
    weights: dict[str, float]
    normalise: Literal["reference", "group"]
    anchors: str | None

    @property
    def models(self) -> tuple[str, ...]:
        """Every model of the committee."""
        return tuple(model for models in self.members.values() for model in models)

    @property
    def classifiers(self) -> tuple[str, ...]:
        """Those of them that are reward models: they write nothing, and their runtimes do not tell cached tokens."""
        return tuple(model for model in self.models if model not in self.judges)


class ReappraisalSettings(BaseModel):
    """The options of a reappraisal job with every default resolved. `judges` holds the judge that compares."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    candidates: int
    gate_retries: int
    sampling: Sampling
    committee: CommitteeSettings | None
    compare: str | None
    judges: dict[str, JudgeSettings]
    pool: str | None
    selected_on: list[str]


class ScoringSettings(BaseModel):
    """The options of a scoring job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    committee: CommitteeSettings


Settings = JobSettings | ReappraisalSettings | ScoringSettings

_SETTINGS: Mapping[JobKind, type[Settings]] = {
    JobKind.JUDGEMENT: JobSettings,
    JobKind.REAPPRAISAL: ReappraisalSettings,
    JobKind.SCORING: ScoringSettings,
}


def read_settings(kind: str, text: str) -> Settings:
    """What `job.settings` holds for a job of this kind."""
    return _SETTINGS[JobKind(kind)].model_validate_json(text)
