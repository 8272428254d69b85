"""All SQL of webhooks. Each function is one short transaction of its caller's; none is ever open across a POST.

Guarantee: an event becomes deliveries once. A delivery is put off by its attempt's deadline before it is attempted, so
that a crash brings it back, and it is marked only after its answer: at least once, under one id.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, text

from services.contract.webhooks import Callback
from services.foundation.identifiers import new_id
from services.vocabulary import DeliveryState
from services.webhooks.deliver import Attempt, Parcel
from services.webhooks.schedule import Standing

UNFANNED = text(
    """
    SELECT event.id, event.tenant_id, event.job_id, event.type, job.callback
    FROM event LEFT JOIN job ON job.id = event.job_id AND job.tenant_id = event.tenant_id
    WHERE event.fanned_at IS NULL
    ORDER BY event.id LIMIT :limit FOR UPDATE OF event SKIP LOCKED
    """
)
FANNED = text("UPDATE event SET fanned_at = now() WHERE id = ANY(:ids)")
ADD_DELIVERY = text(
    """
    INSERT INTO delivery (id, event_id, tenant_id, job_id, url, state)
    VALUES (:id, :event_id, :tenant_id, :job_id, :url, 'pending')
    """
)

# `turn` numbers what one host has under way and due: every host's first comes before any host's second.
CLAIM = text(
    """
    WITH pending AS (
        SELECT id, next_at, lower(substring(url FROM '^[^:]+://([^/?#]+)')) AS host
        FROM delivery WHERE state = 'pending' AND next_at <= now()
    ), due AS MATERIALIZED (
        SELECT id, host, coalesce(running, 0) + row_number() OVER (PARTITION BY host ORDER BY next_at, id) AS turn
        FROM pending LEFT JOIN unnest(CAST(:hosts AS text[]), CAST(:running AS integer[])) AS busy (host, running)
             USING (host)
    ), claimed AS (
        SELECT delivery.id, due.host FROM delivery JOIN due ON due.id = delivery.id
        WHERE delivery.state = 'pending' AND delivery.next_at <= now() AND due.turn <= :per_host
        ORDER BY due.turn, delivery.next_at LIMIT :limit
        FOR UPDATE OF delivery SKIP LOCKED
    )
    UPDATE delivery SET attempts = attempts + 1, next_at = now() + make_interval(secs => :hold)
    FROM claimed, event, tenant
    WHERE delivery.id = claimed.id AND event.id = delivery.event_id AND tenant.id = delivery.tenant_id
    RETURNING delivery.id, delivery.job_id, delivery.attempts AS number, claimed.host, delivery.url,
              event.payload AS body, tenant.webhook_secret
    """
)

ADD_ATTEMPT = text(
    """
    INSERT INTO delivery_attempt (delivery_id, number, started_at, latency_ms, status, error, body)
    SELECT id, :number, :started_at, :latency_ms, :status, :error, :body FROM delivery WHERE id = :id FOR KEY SHARE
    """
)
# A receiver's 2xx counts however late it comes; any other end of an attempt counts only while no later one has begun.
MARK = text(
    """
    UPDATE delivery SET state = :state, next_at = coalesce(now() + make_interval(secs => :delay), next_at),
        ended_at = CASE WHEN :ended THEN now() END
    WHERE id = :id AND state = 'pending' AND (attempts = :number OR :delivered)
    """
)

# Each part reads an index, and no more than :most of its entries.
BACKLOG = text(
    """
    SELECT
        (SELECT count(*) FROM (SELECT FROM event WHERE fanned_at IS NULL ORDER BY id LIMIT :most) AS few) AS events,
        (SELECT count(*) FROM (
            SELECT FROM delivery WHERE state = 'pending' ORDER BY next_at LIMIT :most
        ) AS few) AS pending,
        (SELECT count(*) FROM (
            SELECT FROM delivery WHERE state = 'pending' AND next_at <= now() - interval '1 minute'
            ORDER BY next_at LIMIT :most
        ) AS few) AS overdue
    """
)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Events that are not deliveries yet, deliveries that are pending, and those of them a minute or more overdue."""

    events: int
    pending: int
    overdue: int


def backlog(connection: Connection, most: int) -> Backlog:
    """What waits to be delivered, each counted to `most`."""
    return Backlog(**connection.execute(BACKLOG, {"most": most}).mappings().one())


def fan_out(connection: Connection, limit: int) -> int:
    """Turn up to `limit` events into deliveries to whoever asked for them. Returns how many events were taken."""
    events = connection.execute(UNFANNED, {"limit": limit}).mappings().all()
    deliveries = []
    for event in events:
        callback = event["callback"] and Callback.model_validate_json(event["callback"])
        if callback and event["type"] in callback.events:
            deliveries.append(
                {
                    "id": new_id(),
                    "event_id": event["id"],
                    "tenant_id": event["tenant_id"],
                    "job_id": event["job_id"],
                    "url": callback.url,
                }
            )
    if deliveries:
        connection.execute(ADD_DELIVERY, deliveries)
    if events:
        connection.execute(FANNED, {"ids": [event["id"] for event in events]})
    return len(events)


def claim(connection: Connection, limit: int, per_host: int, running: Mapping[str, int], hold: float) -> list[Parcel]:
    """Take up to `limit` due deliveries, each put off by `hold` seconds and counted as attempted.

    `running` holds the attempts under way by host: with them, no host gets more than `per_host` at once.
    """
    bound = {
        "limit": limit,
        "per_host": per_host,
        "hosts": list(running),
        "running": list(running.values()),
        "hold": hold,
    }
    rows = connection.execute(CLAIM, bound).mappings()
    return [
        Parcel(
            id=row["id"],
            job_id=row["job_id"],
            number=row["number"],
            host=row["host"],
            url=row["url"],
            body=row["body"],
            secrets=(row["webhook_secret"],),
        )
        for row in rows
    ]


def record(connection: Connection, parcel: Parcel, attempt: Attempt, standing: Standing) -> None:
    """Keep what came of an attempt, and where its delivery stands now; nothing, when its job was deleted meanwhile."""
    connection.execute(
        ADD_ATTEMPT,
        {
            "id": parcel.id,
            "number": parcel.number,
            "started_at": attempt.started_at,
            "latency_ms": attempt.latency_ms,
            "status": attempt.status,
            "error": attempt.error,
            "body": attempt.body,
        },
    )
    connection.execute(
        MARK,
        {
            "id": parcel.id,
            "number": parcel.number,
            "state": standing.state,
            "delay": standing.delay,
            "ended": standing.state is not DeliveryState.PENDING,
            "delivered": standing.state is DeliveryState.DELIVERED,
        },
    )
