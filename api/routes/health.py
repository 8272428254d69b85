"""For those who look after the service: alive, ready, metrics. No key is needed, nothing of any tenant is shown."""

from flask import Response
from flask_openapi.blueprint import APIBlueprint
from flask_openapi.types import ResponseDict
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from api.metrics import Facts
from api.session import parts
from services.foundation.database import transaction
from services.foundation.fleet import CPU
from services.jobs.census import MOST, take_census
from services.webhooks.queries import backlog

blueprint = APIBlueprint("health", __name__, abp_tags=[{"name": "health"}])

OK: ResponseDict = {"200": {"description": "yes"}}


@blueprint.get("/healthz", operation_id="alive", responses=OK)
def alive() -> Response:
    """Say that the process answers."""
    return Response('{"status":"ok"}', mimetype="application/json")


@blueprint.get("/readyz", operation_id="ready", responses={**OK, "503": {"description": "PostgreSQL does not answer"}})
def ready() -> Response:
    """Say that PostgreSQL answers, within seconds."""
    with transaction(parts().probe) as connection:
        connection.execute(text("SELECT 1"))
    return Response('{"status":"ready"}', mimetype="application/json")


@blueprint.get("/metrics", operation_id="metrics", responses=OK)
def metrics() -> Response:
    """Show what Prometheus collects; also while the database is down, which it then says."""
    facts: Facts | None
    try:
        with transaction(parts().probe) as connection:
            facts = Facts(take_census(connection, [*parts().fleet.models, CPU]), backlog(connection, MOST))
    except SQLAlchemyError:
        facts = None
    return Response(parts().metrics.page(facts), content_type=CONTENT_TYPE_LATEST)
