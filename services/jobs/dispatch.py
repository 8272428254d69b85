"""Ringing: telling workers that there is something to claim.

Guarantee: what is queued in PostgreSQL gets heard whatever happens to the broker. A bell carries no ids, losing it is
no event, and ringing never raises: the ringer of the maintenance worker rings again within about a second.
"""

from collections.abc import Mapping, Sequence

import structlog
from sqlalchemy import Connection, text

from services.foundation.broker import BrokerAway, make_broker, ring, waiting

log = structlog.get_logger(__name__)

WINDOW = 16  # bells for a model without a live worker: enough to wake one that comes up
PATIENCE = 0.5

# Whoever answers in vain keeps a thread that urgent work needs: a full pool looks at its queue only once a second.
_QUEUED = "SELECT FROM chunk WHERE chunk.state = 'queued' AND chunk.model = served.model"
WANTED = text(
    f"""
    SELECT waiting.model, least(waiting.chunks, coalesce(live.free + waiting.urgent, :window)) AS bells
    FROM (
        SELECT served.model, (SELECT count(*) FROM ({_QUEUED} LIMIT 1000) AS counted) AS chunks,
               (SELECT count(*) FROM ({_QUEUED} AND chunk.priority = 0 LIMIT :window) AS counted) AS urgent
        FROM unnest(cast(:models AS text[])) AS served(model)
    ) AS waiting
    LEFT JOIN (
        SELECT worker.model, sum(greatest(worker.slots - (
            SELECT count(*) FROM chunk
            WHERE chunk.claimed_by = worker.id AND chunk.state = 'running' AND chunk.priority > 0
        ), 0)) AS free
        FROM worker WHERE worker.lease_until > now() GROUP BY worker.model
    ) AS live ON live.model = waiting.model
    WHERE waiting.chunks > 0
    """
)


class Bell:
    """Rings for models over one broker. Best effort: a broker that is away is logged, never raised."""

    def __init__(self, redis_url: str) -> None:
        self._broker = make_broker(redis_url, patience=PATIENCE)

    def ring(self, models: Sequence[str], times: int) -> None:
        """Ring for each model, at most `WINDOW` times. A broker that is away is not waited for a second time."""
        for model in models:
            try:
                ring(self._broker, model, min(times, WINDOW))
            except BrokerAway as error:
                log.warning("bell_not_rung", model=model, error=error.message)
                return

    def top_up(self, wanted: Mapping[str, int]) -> dict[str, int | None]:
        """Ring for each model until as many bells wait as are wanted. Returns how many it rang; None: not all."""
        rung: dict[str, int | None] = {}
        for model, bells in wanted.items():
            try:
                missing = max(0, bells - waiting(self._broker, model))
                ring(self._broker, model, missing)
                rung[model] = missing
            except BrokerAway as error:
                log.warning("bell_not_rung", model=model, error=error.message)
                rung[model] = None
        return rung

    def close(self) -> None:
        """Give the connections back."""
        self._broker.close()


def wanted_bells(connection: Connection, models: list[str]) -> dict[str, int]:
    """How many bells should wait for each model that has queued chunks: one for each free slot of its live workers, and
    for each urgent chunk, which is heard beside those in the slots; no more."""
    return {row.model: int(row.bells) for row in connection.execute(WANTED, {"models": models, "window": WINDOW})}
