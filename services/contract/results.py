"""Results and traces on the wire. Texts that callers sent come back exactly as sent."""

from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from services.contract.items import Item
from services.contract.jobs import Instant, TokenUsage
from services.vocabulary import FinishReason, Flag, ItemError, ItemStatus, Order, Outcome, Stage, Winner


class ItemVerdict(BaseModel):
    """The panel's answer on one item, in the item's frame: `A` is its first candidate."""

    winner: Winner | int | None = Field(
        description="null: an abstention. Of more than two candidates the best one's index, or `tie`"
    )
    p_a: float | None = Field(description="how far the panel prefers the first candidate, 0 to 1; null for more than 2")
    consistent: bool | None = Field(description="both orders prefer the same side; null with a single order")
    ranking: list[int] | None = Field(
        default=None, description="of more than two: the candidates' indices, the best first; equal ones as given"
    )
    ranks: list[int] | None = Field(
        default=None, description="of more than two: each candidate's rank; equal ones share"
    )
    scores: list[float] | None = Field(
        default=None, description="of more than two: each candidate's mean in `matrix` over those it was compared with"
    )
    matrix: list[list[float | None]] | None = Field(
        default=None, description="how far the row is preferred to the column; null where they were not compared"
    )
    strengths: list[dict[str, float]] | None = Field(
        default=None,
        description="Bradley-Terry log-strengths with 95 % intervals, which take all calls as independent: too narrow "
        "where orders or samples repeat each other. Null where candidates were graded",
    )
    adjusted: list[float] | None = Field(
        default=None,
        description="the grades, or where there are none the scores, as the job's score policies have changed them: "
        "the ranks follow these",
    )
    separated: bool | None = Field(
        default=None, description="some candidates beat the rest without exception: how far ahead they are is a guess"
    )
    missing: list[str] | None = Field(default=None, description="judges of the panel that gave no opinion in time")
    disagreement: float | None = Field(
        default=None, description="the chance that two judges of the panel, drawn by weight, differ in their winner"
    )
    opinions: list[dict[str, Any]] = Field(description="one a judge")


class MemberScore(BaseModel):
    """One member's score of a text: `z` is `raw` in standard deviations from the mean of what it is normalised by."""

    raw: float | None
    z: float | None = Field(description="null where it cannot be told: a member's score is missing, or a group of one")


class ModelScore(BaseModel):
    """One model's raw score of a text, and what its calls came to: null is a score that it did not give."""

    raw: float | None
    outcome: Outcome
    valid: int = Field(description="the samples that the score rests on")
    asked: int = Field(description="the samples that were asked for")


class Assessed(BaseModel):
    """What a committee says of one text; all null where it was not scored."""

    score: float | None = Field(description="mean - 0.5 * std; null when a member gave no score")
    mean: float | None = Field(description="of the members' z, by their weights")
    std: float | None = Field(description="of the members' z: how far they disagree")
    scores: dict[str, MemberScore] | None = Field(description="by member")
    models: dict[str, ModelScore] | None = Field(description="by model: an ensemble has several")
    missing: list[str] | None = Field(description="members that gave no score")


class Provenance(BaseModel):
    """Who scored an item's texts."""

    committee: str | None
    epochs: dict[str, UUID] | None = Field(description="by model: the start of the runtime that scored")
    anchors: int | None = Field(description="how many anchors every member scored; null where none are used")
    absent: list[str] | None = Field(description="members whose models had not all scored by the deadline")
    flags: list[Flag] | None = Field(description="such as `injection_suspected`, of all that was shown and read")


class WrittenText(Assessed):
    """One text that was written for a scenario, whether it passed the gate or not."""

    candidate: int = Field(description="which of the candidates it is, from 0")
    attempt: int = Field(description="0, or how often this candidate had been written before")
    text: str
    outcome: Outcome = Field(description="`accepted`, or why it did not pass the gate")
    sentences: int | None


class PairAnswer(BaseModel):
    """A judge's answer on one of several pairs; `A` is the candidate `first`."""

    first: int = Field(description="by its index in the item; the chosen text of a reappraisal is 0")
    second: int = Field(description="the baselines of a reappraisal count from 1 on")
    winner: Winner | None = Field(description="null without an `error`: an abstention")
    p: float | None = Field(description="how far `first` is preferred, 0 to 1")
    consistent: bool | None = Field(description="both orders prefer the same side; null with a single order")
    error: ItemError | None = Field(description="why there is no answer")
    votes: dict[Order, dict[Winner, int]] = Field(description="the valid answers by order")


class TextOpinion(BaseModel):
    """One judge's opinion on a chosen text and its baselines, with all else that an opinion has."""

    model_config = ConfigDict(extra="allow")

    judge: str
    winner: Winner | int | None = Field(description="of several baselines the index of the best text, or `tie`")
    reason: str | None = Field(description="why there is no winner")
    pairs: list[PairAnswer] = Field(
        description="of several baselines each one's answer, the chosen text being `first`; empty with one baseline, "
        "and where a judge grades texts one by one: `grades` tell there"
    )
    grades: list[float | None] | None = Field(description="of the chosen text and then each baseline")


class TextComparison(BaseModel):
    """How a chosen text compares with its item's baselines: `A`, and the index 0, is the chosen text."""

    winner: Winner | None = Field(
        description="with one baseline, and `reason` says why there is none; of several baselines null: who wins "
        "against each stands in `opinions[].pairs`"
    )
    p_a: float | None = Field(description="null of several baselines, as is `consistent`")
    consistent: bool | None
    reason: str | None = Field(
        description="`missing`: the judge gave no opinion in time; `orders_conflict`: it abstains; or its error's code"
    )
    opinions: list[TextOpinion]


class ReappraisalResult(Provenance):
    """What was written for one scenario, and what was chosen."""

    text: str | None = Field(description="the chosen text")
    selected: int | None = Field(
        description="its index in `candidates`, which lists attempts, not its `candidate`: the committee's choice, or "
        "without a committee the first accepted text"
    )
    eligible: list[int] | None = Field(description="the selection pool, by index in `candidates`: the accepted texts")
    candidates: list[WrittenText] = Field(description="every text that was written, by candidate and attempt")
    comparison: TextComparison | None = Field(description="null unless the job compares")


class ItemFailure(BaseModel):
    """Why an item failed."""

    code: ItemError
    message: str


class Result(BaseModel):
    """What became of one item: one line of the results."""

    custom_id: str
    seq: int = Field(description="the item's place in the job, from 0")
    status: ItemStatus
    verdict: ItemVerdict | None = Field(description="of a succeeded item of a judgement")
    error: ItemFailure | None = Field(description="of a failed item")
    usage: TokenUsage
    reappraisal: ReappraisalResult | None = Field(
        default=None, description="of a reappraisal job alone; a failed item's shows what was written"
    )
    score: float | None = Field(default=None, description="of a scoring job alone: mean - 0.5 * std of the members' z")
    mean: float | None = Field(default=None, description="of a scoring job alone: of the members' z")
    std: float | None = Field(default=None, description="of a scoring job alone: how far the members disagree")
    scores: dict[str, MemberScore] | None = Field(default=None, description="of a scoring job alone: by member")
    models: dict[str, ModelScore] | None = Field(default=None, description="of a scoring job alone: by model")
    missing: list[str] | None = Field(default=None, description="of a scoring job alone: members without a score")
    committee: str | None = Field(default=None, description="of a scoring job alone")
    epochs: dict[str, UUID] | None = Field(default=None, description="of a scoring job alone: as in `reappraisal`")
    anchors: int | None = Field(default=None, description="of a scoring job alone: as in `reappraisal`")
    absent: list[str] | None = Field(default=None, description="of a scoring job alone: as in `reappraisal`")
    flags: list[Flag] | None = Field(default=None, description="of a scoring job alone: as in `reappraisal`")


class ResultPage(BaseModel):
    """A page of results in the order in which they ended.

    `next` is the `after` that goes on from here: null at the end of an ended job, and before a job's first result.
    """

    data: list[Result]
    has_more: bool = Field(description="more results are there now; a running job may add others later")
    next: str | None


class Trace(BaseModel):
    """The raw record of one call to a runtime."""

    custom_id: str
    seq: int
    stage: Stage
    judge: str
    call: int = Field(description="the number of the call within its item and judge")
    order: Order | None = Field(description="null for a judge that is shown one candidate at a time")
    slots: list[int] = Field(description="the candidates shown, by index, in the order of their slots")
    sample: int
    forced: bool = Field(description="one token out of the labels: a verdict, or the probability of a written one")
    outcome: Outcome
    reading: dict[str, Any] = Field(description="what was read, by which rule, and where; `A` is the first slot")
    prompt: str | None = Field(description="null where only hashes are kept, and where the chat template refused")
    prompt_sha256: str | None = Field(description="null where the chat template refused")
    completion: str | None
    finish_reason: FinishReason | None
    prompt_tokens: int | None = Field(description="as the runtime counts; of a call never sent, what did not fit")
    cached_tokens: int | None = Field(description="null where the runtime does not tell, as of a classification")
    completion_tokens: int | None
    label_logprobs: dict[str, float] | None = Field(description="natural logarithms among the labels, at temperature 1")
    sampling: dict[str, Any] | None
    error_message: str | None
    sent_at: Instant | None
    latency_ms: float | None = Field(description="as the worker waited")
    queue_ms: float | None = Field(description="as the runtime reports it")
    epoch_id: UUID = Field(description="the start of the runtime that answered")


class ResultDetail(Result):
    """One item with all that is known about it, whatever its job's state."""

    status: ItemStatus | Literal["queued", "running"]  # type: ignore[assignment] # of an item that has not ended, too
    item: Item = Field(description="exactly as sent")
    opinions: list[dict[str, Any]] = Field(description="also those of a failed item")
    traces: list[Trace] | None = Field(description="null when they are not kept any more")
