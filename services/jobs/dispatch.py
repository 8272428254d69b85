"""Ringing: telling workers that there is something to claim.

Guarantee: what is queued in PostgreSQL gets heard whatever happens to the broker. A bell carries no ids, losing it is
no event, and ringing never raises: the ringer of the maintenance worker rings again within about a second.
"""

from collections.abc import Mapping

import structlog
from sqlalchemy import Connection, text

from services.foundation.broker import BrokerAway, make_broker, ring, waiting

log = structlog.get_logger(__name__)

WINDOW = 16  # bells for a model without a live worker: enough to wake one that comes up
PATIENCE = 0.5

WANTED = text(
    """
    SELECT waiting.model, least(waiting.chunks, greatest(coalesce(live.slots, 0), :window)) AS bells
    FROM (
        SELECT model.model, (
            SELECT count(*) FROM (
                SELECT 1 FROM chunk WHERE state = 'queued' AND chunk.model = model.model LIMIT 1000
            ) AS counted
        ) AS chunks
        FROM unnest(cast(:models AS text[])) AS model(model)
    ) AS waiting
    LEFT JOIN (
        SELECT model, sum(slots) AS slots FROM worker WHERE lease_until > now() GROUP BY model
    ) AS live ON live.model = waiting.model
    WHERE waiting.chunks > 0
    """
)


class Bell:
    """Rings for models over one broker. Best effort: a broker that is away is logged, never raised."""

    def __init__(self, redis_url: str) -> None:
        self._broker = make_broker(redis_url, patience=PATIENCE)

    def ring(self, model: str, times: int) -> None:
        """Ring for a model, at most `WINDOW` times."""
        try:
            ring(self._broker, model, min(times, WINDOW))
        except BrokerAway as error:
            log.warning("bell_not_rung", model=model, error=error.message)

    def top_up(self, wanted: Mapping[str, int]) -> None:
        """Ring for each model until as many bells wait as are wanted."""
        for model, bells in wanted.items():
            try:
                ring(self._broker, model, bells - waiting(self._broker, model))
            except BrokerAway as error:
                log.warning("bell_not_rung", model=model, error=error.message)

    def close(self) -> None:
        """Give the connections back."""
        self._broker.close()


def wanted_bells(connection: Connection, models: list[str]) -> dict[str, int]:
    """How many bells should wait for each model that has queued chunks: one a slot of its live workers, no more."""
    return {row.model: int(row.bells) for row in connection.execute(WANTED, {"models": models, "window": WINDOW})}
