"""Reading results and traces."""

from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from urllib.parse import parse_qs

from flask import Response, request
from flask_openapi.blueprint import APIBlueprint

from api import openapi
from api.auth import authenticate, tenant_id
from api.routes.parameters import NDJSON, JobPath, NoQuery, ResultsQuery, wants, wrong_parameter
from api.session import parts, session
from services.contract.results import Result, ResultDetail, ResultPage, Trace
from services.foundation.jsontext import escaped
from services.jobs.queries import load_job
from services.jobs.results import check_traces, one_result, results_page, stream_results, stream_traces

JSON = "application/json"
PAGE = 100

blueprint = APIBlueprint(
    "results", __name__, url_prefix="/v1", abp_security=openapi.SECURED, abp_tags=[{"name": "results"}]
)
blueprint.before_request(authenticate)

PAGE_OR_ONE = {"anyOf": [openapi.schema(ResultPage), openapi.schema(ResultDetail)]}


@blueprint.get(
    "/jobs/<job_id>/results",
    operation_id="get_results",
    responses=openapi.answers(
        HTTPStatus.OK,
        "A page; with `Accept: application/x-ndjson` every result, one a line; with `custom_id` one item in full",
        {JSON: PAGE_OR_ONE, NDJSON: Result},
        HTTPStatus.NOT_FOUND,
    ),
)
def get_results(path: JobPath, query: ResultsQuery) -> Response:
    """Read results, also while the job runs.

    Every item stands in them exactly once, in the order in which they ended, failed ones with their error.
    """
    if query.custom_id is not None:
        return _one(path, query)
    if wants(request, JSON, NDJSON) == NDJSON:
        return _stream(path, query)
    with session() as connection:
        view = load_job(connection, tenant_id(), path.id)
        page = results_page(connection, tenant_id(), path.id, query.limit or PAGE, query.cursor, query.status)
    goes_on = page.more or (not view.ended and page.cursor.version > 0)
    tail = escaped({"has_more": page.more, "next": str(page.cursor) if goes_on else None})
    return Response(f'{{"data":[{",".join(page.lines)}],{tail[1:]}', mimetype=JSON)


def _one(path: JobPath, query: ResultsQuery) -> Response:
    for name in ("limit", "after", "status"):
        if getattr(query, name) is not None:
            raise wrong_parameter(name, "does not go with custom_id")
    # Read again, since an id may hold lone surrogates, which the framework replaces.
    try:
        given = parse_qs(request.query_string.decode("ascii"), errors="surrogatepass", keep_blank_values=True)
    except UnicodeDecodeError:
        raise wrong_parameter("custom_id", "not percent-encoded UTF-8") from None
    with session() as connection:
        return Response(one_result(connection, tenant_id(), path.id, given["custom_id"][0]), mimetype=JSON)


def _stream(path: JobPath, query: ResultsQuery) -> Response:
    if query.limit is not None:
        raise wrong_parameter("limit", "does not go with a stream")
    with session() as connection:
        load_job(connection, tenant_id(), path.id)
    pages = stream_results(parts().engine, tenant_id(), path.id, query.cursor, query.status)
    return Response(_lines(pages), mimetype=NDJSON)


@blueprint.get(
    "/jobs/<job_id>/traces",
    operation_id="get_traces",
    responses=openapi.answers(
        HTTPStatus.OK, "One trace a line", {NDJSON: Trace}, HTTPStatus.NOT_FOUND, HTTPStatus.GONE
    ),
)
def get_traces(path: JobPath, query: NoQuery) -> Response:  # noqa: ARG001 - declares that there are no parameters
    """Read the raw record of every call so far, one a line, by item.

    An installation may keep traces for a while only: later the answer is 410, `traces_pruned`.
    """
    with session() as connection:
        day = check_traces(connection, tenant_id(), path.id)
    return Response(_lines(stream_traces(parts().engine, tenant_id(), path.id, day)), mimetype=NDJSON)


def _lines(pages: Iterable[Sequence[str]]) -> Iterator[str]:
    for page in pages:
        if page:
            yield "\n".join(page) + "\n"
