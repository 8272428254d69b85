"""The fleet on the wire."""

from typing import Literal

from pydantic import BaseModel, Field

from services.vocabulary import Mode

Health = Literal["ready", "starting", "draining", "unhealthy", "offline"]


class ModelStatus(BaseModel):
    """One model of the fleet and how its workers do."""

    name: str
    protocol: str
    weights: str
    revision: str | None
    context_length: int
    mode: Mode = Field(description="the default mode of its jobs")
    health: Health = Field(description="the best state of its live workers; `offline` without one")
    workers: int = Field(description="live workers")
    running_calls: int
    tokens_per_second: float
    epochs: list[str] = Field(description="the runtime starts that answer now")
    queue_depth: int = Field(description="items that wait for this model, of all tenants")


class ModelList(BaseModel):
    """All models of the fleet, by name."""

    data: list[ModelStatus]
    has_more: bool = False
    next: str | None = None
