"""A job's statistics, for programs and for people."""

from http import HTTPStatus

from flask import Response, request
from flask_openapi.blueprint import APIBlueprint

from api import openapi
from api.auth import authenticate, tenant_id
from api.routes.parameters import JobPath, NoQuery, wants
from api.session import parts
from services.contract.reports import Report
from services.reports.text import markdown

JSON = "application/json"
MARKDOWN = "text/markdown"

blueprint = APIBlueprint(
    "reports", __name__, url_prefix="/v1", abp_security=openapi.SECURED, abp_tags=[{"name": "reports"}]
)
blueprint.before_request(authenticate)


@blueprint.get(
    "/jobs/<job_id>/report",
    operation_id="get_report",
    responses=openapi.answers(
        HTTPStatus.OK,
        "The statistics of the items heard so far; `Accept: text/markdown` gives a text for people",
        {JSON: Report, MARKDOWN: {"type": "string"}},
        HTTPStatus.NOT_FOUND,
    ),
)
def get_report(path: JobPath, query: NoQuery) -> Response:  # noqa: ARG001 - declares that there are no parameters
    """Read a job's report, by its kind: win rates or scores, agreement, position bias, failures, usage."""
    # here, since scipy and statsmodels would add some seconds to every start
    from services.reports.queries import report  # noqa: PLC0415

    found = report(parts().engine, tenant_id(), path.id)
    if wants(request, JSON, MARKDOWN) == MARKDOWN:
        return Response(markdown(found), mimetype=MARKDOWN)
    return Response(found.json_text(), mimetype=JSON)
