"""Results and traces on the wire. Texts that callers sent come back exactly as sent."""

from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from services.contract.jobs import Comparison, Instant, TokenUsage
from services.vocabulary import FinishReason, ItemError, ItemStatus, Order, Outcome, Stage, Winner


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


class ItemFailure(BaseModel):
    """Why an item failed."""

    code: ItemError
    message: str


class Result(BaseModel):
    """What became of one item: one line of the results."""

    custom_id: str
    seq: int = Field(description="the item's place in the job, from 0")
    status: ItemStatus
    verdict: ItemVerdict | None = Field(description="of a succeeded item")
    error: ItemFailure | None = Field(description="of a failed item")
    usage: TokenUsage


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
    prompt: str | None
    prompt_sha256: str | None
    completion: str | None
    finish_reason: FinishReason | None
    prompt_tokens: int | None = Field(description="as the runtime counts; of a call never sent, what did not fit")
    cached_tokens: int | None
    completion_tokens: int | None
    label_logprobs: dict[str, float] | None = Field(description="natural logarithms among the labels, at temperature 1")
    sampling: dict[str, Any] | None
    error_message: str | None
    sent_at: Instant | None
    latency_ms: float | None = Field(description="as the worker waited")
    queue_ms: float | None = Field(description="as the runtime reports it")
    epoch_id: UUID = Field(description="the start of the runtime that answered")


class ResultDetail(BaseModel):
    """One item with all that is known about it, whatever its job's state."""

    custom_id: str
    seq: int
    status: ItemStatus | Literal["queued", "running"]
    verdict: ItemVerdict | None
    error: ItemFailure | None
    usage: TokenUsage
    item: Comparison = Field(description="exactly as sent")
    opinions: list[dict[str, Any]] = Field(description="also those of a failed item")
    traces: list[Trace]
