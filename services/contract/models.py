"""The fleet on the wire."""

from typing import Literal

from pydantic import BaseModel, Field

from services.vocabulary import Mode, Task

Health = Literal["ready", "starting", "restarting", "draining", "unhealthy", "defunct", "offline"]


class ModelStatus(BaseModel):
    """One model of the fleet and how its workers do."""

    name: str
    protocol: str
    weights: str
    revision: str | None
    context_length: int
    task: Task | None = Field(description="what it does; null where its protocol is not known here")
    mode: Mode | None = Field(description="the default mode of a judge's jobs; null for what does not judge")
    health: Health = Field(
        description="the best state of its live workers; without one `offline`, or `defunct` if the last gave up"
    )
    workers: int = Field(description="live workers")
    running_calls: int
    tokens_per_second: float
    epochs: list[str] = Field(description="the runtime starts that answer now")
    queue_depth: int = Field(description="items that wait for this model, of all tenants")


class CommitteeShown(BaseModel):
    """One committee of the fleet."""

    name: str
    members: dict[str, list[str]] = Field(description="the models of each member, several where it is an ensemble")
    weights: dict[str, float] = Field(description="by member; only their ratios count")
    normalise: Literal["reference", "group"]


class ModelList(BaseModel):
    """All models and committees of the fleet, by name."""

    data: list[ModelStatus]
    committees: list[CommitteeShown]
    has_more: bool = False
    next: str | None = None
