"""The API's composition root.

Guarantee: nothing is connected here; the first request that needs the database or the broker connects.
"""

import re
import time
from uuid import uuid4

import structlog
from flask import Flask, Response, g, request
from flask_openapi.openapi import OpenAPI

from api import errors, openapi, session
from api.metrics import Metrics
from api.routes import health, jobs, models, parameters, reports, results
from services.contract.problems import Problem
from services.foundation.database import make_engine
from services.foundation.fleet import load_fleet
from services.foundation.identifiers import parsed
from services.foundation.settings import Settings
from services.foundation.version import VERSION
from services.jobs.dispatch import Bell
from services.jobs.request import check_fleet

CONNECTIONS = 16
PROBE_PATIENCE = 2  # seconds that a look after the database may take: whoever looks waits for a few
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def create_app(settings: Settings) -> Flask:
    """The API as a WSGI application. Raises Misconfigured."""
    fleet = load_fleet(settings.fleet)
    check_fleet(fleet)
    app = OpenAPI(
        "api",
        info={"title": "Assizes", "version": VERSION, "description": "Asynchronous judging of texts by models."},
        security_schemes=openapi.KEY,
        validation_error_model=Problem,
        validation_error_callback=parameters.refuse,
        doc_ui=False,
        static_folder=None,
    )
    app.openapi_version = openapi.VERSION
    app.url_map.merge_slashes = False
    session.install(
        app,
        session.Parts(
            settings=settings,
            fleet=fleet,
            engine=make_engine(settings.database_url, "assizes-api", pool_size=CONNECTIONS),
            probe=make_engine(settings.database_url, "assizes-probe", pool_size=None, patience=PROBE_PATIENCE),
            bell=Bell(settings.redis_url),
            metrics=Metrics(),
        ),
    )
    errors.install(app)
    app.before_request(_begin)
    app.after_request(_end)
    for routes in (jobs, results, reports, models, health):
        app.register_api(routes.blueprint)
    openapi.install(app, openapi.describe(app))
    return app


def _begin() -> None:
    given = request.headers.get("X-Request-Id", "")
    g.request_id = given if REQUEST_ID.fullmatch(given) else uuid4().hex
    g.began = time.monotonic()
    structlog.contextvars.clear_contextvars()  # of the request that this thread answered before
    structlog.contextvars.bind_contextvars(request_id=g.request_id)
    job = (request.view_args or {}).get("job_id", "")
    if parsed("job", job) is not None:
        structlog.contextvars.bind_contextvars(job=job)


def _end(response: Response) -> Response:
    response.headers["X-Request-Id"] = g.request_id
    response.headers["X-Content-Type-Options"] = "nosniff"
    route = request.url_rule.rule if request.url_rule else "none"
    method = request.method if route != "none" else "none"
    session.parts().metrics.answered(method, route, response.status_code, time.monotonic() - g.began)
    return response
