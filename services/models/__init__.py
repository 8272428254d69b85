"""The tables. They are never wire schemas: `table=True` skips validation."""

from services.models.chunk import Chunk
from services.models.death import Death
from services.models.job import Item, Job
from services.models.reappraisal import AnchorScores, AnchorTexts, Assessment, Reappraisal, Score
from services.models.tenant import ApiKey, Tenant
from services.models.trace import Trace
from services.models.turn import Share, Turn
from services.models.verdict import Opinion, Verdict
from services.models.webhook import Delivery, DeliveryAttempt, Event
from services.models.worker import RuntimeEpoch, Worker

__all__ = [
    "AnchorScores",
    "AnchorTexts",
    "ApiKey",
    "Assessment",
    "Chunk",
    "Death",
    "Delivery",
    "DeliveryAttempt",
    "Event",
    "Item",
    "Job",
    "Opinion",
    "Reappraisal",
    "RuntimeEpoch",
    "Score",
    "Share",
    "Tenant",
    "Trace",
    "Turn",
    "Verdict",
    "Worker",
]
