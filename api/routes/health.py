"""For those who look after the service: alive, ready, metrics. No key is needed, nothing of any tenant is shown."""

import structlog
from flask import Response
from flask_openapi.blueprint import APIBlueprint
from flask_openapi.types import ResponseDict
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from api.metrics import Facts
from api.session import parts
from services.foundation.database import transaction
from services.foundation.fleet import CPU
from services.jobs.census import MOST, take_census
from services.webhooks.queries import backlog

log = structlog.get_logger(__name__)

# Prometheus waits for ten seconds, of which connecting and asking whether anybody is there may take two each.
CENSUS_WITHIN = text("SET LOCAL transaction_timeout = '4s'")

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
    """Show what Prometheus collects; also while the database is down or cannot be read, which it then says."""
    answers = False
    facts: Facts | None = None
    try:
        with transaction(parts().probe) as connection:
            connection.execute(text("SELECT 1"))
            answers = True
            connection.execute(CENSUS_WITHIN)
            facts = Facts(take_census(connection, [*parts().fleet.models, CPU]), backlog(connection, MOST))
    except DBAPIError as error:
        log.warning("census_failed" if answers else "database_away", error=type(error.orig).__name__)
    return Response(parts().metrics.page(answers, facts), content_type=CONTENT_TYPE_LATEST)
