"""For those who look after the service: alive, ready, metrics. No key is needed, nothing of any tenant is shown."""

from flask import Response
from flask_openapi.blueprint import APIBlueprint
from flask_openapi.types import ResponseDict
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from api.session import parts, session
from services.foundation.fleet import CPU
from services.jobs.roster import queue_depths

blueprint = APIBlueprint("health", __name__, abp_tags=[{"name": "health"}])

OK: ResponseDict = {"200": {"description": "yes"}}


@blueprint.get("/healthz", operation_id="alive", responses=OK)
def alive() -> Response:
    """Say that the process answers."""
    return Response('{"status":"ok"}', mimetype="application/json")


@blueprint.get("/readyz", operation_id="ready", responses={**OK, "503": {"description": "PostgreSQL does not answer"}})
def ready() -> Response:
    """Say that PostgreSQL answers."""
    with session() as connection:
        connection.execute(text("SELECT 1"))
    return Response('{"status":"ready"}', mimetype="application/json")


@blueprint.get("/metrics", operation_id="metrics", responses=OK)
def metrics() -> Response:
    """Show what Prometheus collects; also while the database is down, which it then says."""
    try:
        with session() as connection:
            waiting = {**dict.fromkeys((*parts().fleet.models, CPU), 0), **queue_depths(connection)}
    except SQLAlchemyError:
        waiting = None
    return Response(parts().metrics.page(waiting), content_type=CONTENT_TYPE_LATEST)
