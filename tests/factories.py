"""What many tests start from: tenants, comparisons and queued jobs, made by the service's own ways."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.foundation.fleet import Fleet, FleetModel
from services.foundation.identifiers import new_id
from services.jobs.request import read_job_with_items
from services.jobs.submit import submit

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
MODEL = "tiny"
FLEET = Fleet(
    models={
        name: FleetModel(name=name, protocol="sdrm", weights="nowhere", options={"mode": "direct"})
        for name in (MODEL, "other", "third")
    }
)


def make_tenant(engine: Engine, name: str = "acme") -> UUID:
    """A tenant without keys."""
    tenant_id = new_id()
    with transaction(engine) as connection:
        connection.execute(
            text("INSERT INTO tenant (id, name, webhook_secret) VALUES (:id, :name, :secret)"),
            {"id": tenant_id, "name": name, "secret": SECRET},
        )
    return tenant_id


def comparisons(count: int) -> list[dict[str, Any]]:
    """Items with distinct custom ids q0, q1, ... and short texts, labelled A."""
    return [
        {
            "custom_id": f"q{number}",
            "context": [{"role": "user", "content": f"What is {number} plus one?"}],
            "candidates": [{"content": str(number + 1)}, {"content": "I do not know."}],
            "label": "A",
        }
        for number in range(count)
    ]


def queue_job(
    engine: Engine,
    tenant_id: UUID,
    items: int | Sequence[Mapping[str, Any]],
    fleet: Fleet = FLEET,
    **request: Any,
) -> UUID:
    """Submit a job as the API does; `request` adds to its body or replaces parts of it.

    A kind that it names is not that of a judgement: its judges are not named either.
    """
    listed = comparisons(items) if isinstance(items, int) else items
    least = {} if "kind" in request else {"kind": "judgement", "judges": [MODEL]}
    body = {**least, "items": listed, **request}
    return queue_body(engine, tenant_id, json.dumps(body).encode(), fleet)


def queue_body(engine: Engine, tenant_id: UUID, body: bytes, fleet: Fleet = FLEET) -> UUID:
    """Submit the job that a request's body describes."""
    submission, inline = read_job_with_items(body, fleet)
    return submit(engine, tenant_id, submission, inline).job_id
