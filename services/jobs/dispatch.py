"""Ringing: telling workers that there is something to claim.

Guarantee: what is queued in PostgreSQL gets heard whatever happens to the broker. A bell carries no ids, losing it is
no event, and ringing never raises: the ringer of the maintenance worker rings again within about a second.
"""

import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from sqlalchemy import Connection, text

from services.foundation.broker import HEAR, hear_queue, make_broker

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
    """Rings for models over one broker."""

    def __init__(self, redis_url: str) -> None:
        self.broker: Celery = make_broker(redis_url, patience=PATIENCE)

    def ring(self, model: str, times: int) -> None:
        """Ring for a model, at most `WINDOW` times. Best effort: a broker that cannot take it is logged, not raised."""
        try:
            with self.broker.connection_for_write() as connection, connection.Producer() as producer:
                for _ in range(min(times, WINDOW)):
                    self.broker.send_task(
                        HEAR, args=(model,), queue=hear_queue(model), producer=producer, retry=False, ignore_result=True
                    )
        except (OperationalError, RedisError, OSError) as error:
            log.warning("bell_not_rung", model=model, error=type(error).__name__)

    def top_up(self, wanted: dict[str, int]) -> None:
        """Ring each model up to its wanted number of waiting bells. Best effort as `ring`."""
        for model, bells in wanted.items():
            try:
                with self.broker.connection_for_read() as connection:
                    waiting = connection.default_channel.client.llen(hear_queue(model))
            except (OperationalError, RedisError, OSError) as error:
                log.warning("bells_not_counted", model=model, error=type(error).__name__)
                continue
            if waiting < bells:
                self.ring(model, bells - waiting)

    def close(self) -> None:
        """Give the connections back."""
        self.broker.close()


def wanted_bells(connection: Connection, models: list[str]) -> dict[str, int]:
    """How many bells should wait for each model that has queued chunks: one a slot of its live workers, no more."""
    return {row.model: int(row.bells) for row in connection.execute(WANTED, {"models": models, "window": WINDOW})}
