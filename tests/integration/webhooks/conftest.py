"""Ended jobs with their events, in a real database, as whoever ends a job leaves them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from services.contract.webhooks import job_event_payload
from services.foundation.database import transaction
from services.foundation.identifiers import new_id
from services.vocabulary import EventType
from services.webhooks.sign import new_secret

ADD_TENANT = text("INSERT INTO tenant (id, name, webhook_secret) VALUES (:id, :name, :secret)")
ADD_JOB = text(
    """
    INSERT INTO job (id, tenant_id, day, kind, status, priority, judges, settings, callback, total, succeeded, sequence,
                     ended_at, deadline)
    VALUES (:id, :tenant_id, current_date, 'judgement', 'completed', 1, '{judge}', '{}', :callback, 1, 1, 1,
            now(), now() + interval '7 days')
    RETURNING *
    """
)
ADD_EVENT = text(
    """
    INSERT INTO event (id, tenant_id, job_id, type, sequence, payload)
    VALUES (:id, :tenant_id, :job_id, :type, 1, :payload)
    """
)


@dataclass(frozen=True, slots=True)
class Docket:
    """One tenant with its webhook secret, and what its database holds."""

    engine: Engine
    tenant_id: UUID
    secret: str

    def end_job(self, url: str | None, event: EventType = EventType.JOB_COMPLETED, **callback: object) -> UUID:
        """A job that has just ended, told to `url`; to nobody when None. Returns its id."""
        job_id = new_id()
        told = None if url is None else json.dumps({"url": url, **callback})
        with transaction(self.engine) as connection:
            bound = {"id": job_id, "tenant_id": self.tenant_id, "callback": told}
            job = connection.execute(ADD_JOB, bound).mappings().one()
            payload = job_event_payload(event, job, "https://assizes.example")
            bound = {"id": new_id(), "tenant_id": self.tenant_id, "job_id": job_id, "type": event, "payload": payload}
            connection.execute(ADD_EVENT, bound)
        return job_id

    def rows(self, query: str, **bound: object) -> list[Mapping[str, Any]]:
        """What a query answers."""
        with transaction(self.engine) as connection:
            return [dict(row) for row in connection.execute(text(query), bound).mappings()]

    def deliveries(self) -> list[Mapping[str, Any]]:
        """All deliveries, the oldest first; `wait` and `hold`: seconds from now, and from its making, to `next_at`."""
        seconds = "extract(epoch FROM next_at - now()) AS wait, extract(epoch FROM next_at - created_at) AS hold"
        return self.rows(f"SELECT *, {seconds} FROM delivery ORDER BY id")

    def attempts(self) -> list[Mapping[str, Any]]:
        """All attempts in their order."""
        return self.rows("SELECT * FROM delivery_attempt ORDER BY delivery_id, number")

    def states(self) -> list[str]:
        """The states of all deliveries."""
        return [row["state"] for row in self.deliveries()]

    def let_time_pass(self) -> None:
        """Whatever waits for its time is due now."""
        with transaction(self.engine) as connection:
            connection.execute(text("UPDATE delivery SET next_at = now() WHERE state = 'pending'"))


@pytest.fixture
def add_tenant(engine: Engine) -> Callable[[str], Docket]:
    """Adds a tenant by name."""

    def add(name: str) -> Docket:
        docket = Docket(engine, new_id(), new_secret())
        with transaction(engine) as connection:
            connection.execute(ADD_TENANT, {"id": docket.tenant_id, "name": name, "secret": docket.secret})
        return docket

    return add


@pytest.fixture
def docket(add_tenant: Callable[[str], Docket]) -> Docket:
    """The docket of one tenant."""
    return add_tenant("one")
