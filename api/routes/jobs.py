"""Submitting, listing and reading jobs; cancelling them, trying or reading them again, deleting them."""

from http import HTTPStatus
from typing import BinaryIO, cast

import structlog
from flask import Response, request
from flask_openapi.blueprint import APIBlueprint

from api import openapi
from api.auth import authenticate, tenant_id
from api.errors import InvalidMultipart, UnsupportedMediaType
from api.routes.parameters import JobPath, JobsQuery, NoQuery
from api.session import parts, session
from api.uploads import received
from services.contract.jobs import InlineJobRequest, Job, JobPage, JobRequest, RereadRequest, RetryRequest
from services.foundation.identifiers import shown
from services.foundation.jsontext import escaped
from services.jobs.cancel import cancel
from services.jobs.delete import delete
from services.jobs.intake import ItemReader, Upload
from services.jobs.queries import JobView, list_jobs, load_job
from services.jobs.request import read_job, read_job_with_items
from services.jobs.reread import read_reread, submit_reread
from services.jobs.retry import read_retry, submit_retry
from services.jobs.submit import Submitted, submit

log = structlog.get_logger(__name__)

LARGEST_JSON = 64 << 20
JSON = "application/json"
FORM = "multipart/form-data"

blueprint = APIBlueprint("jobs", __name__, url_prefix="/v1", abp_security=openapi.SECURED, abp_tags=[{"name": "jobs"}])
blueprint.before_request(authenticate)

FORM_SHAPE = {
    "type": "object",
    "required": ["job", "items"],
    "properties": {
        "job": openapi.schema(JobRequest),
        "items": {
            "type": "string",
            "description": "NDJSON: one Comparison, Scenario or Response a line, by the job's kind; Content-Encoding: "
            "gzip is allowed",
        },
    },
}


@blueprint.post(
    "/jobs",
    operation_id="submit_job",
    request_body={
        "required": True,
        "content": {JSON: {"schema": openapi.schema(InlineJobRequest)}, FORM: {"schema": FORM_SHAPE}},
    },
    responses=openapi.answers(
        HTTPStatus.ACCEPTED,
        "The job is in the queue",
        {JSON: Job},
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.SERVICE_UNAVAILABLE,
    ),
)
def submit_job(query: NoQuery) -> Response:  # noqa: ARG001 - declares that there are no parameters
    """Submit a job.

    A judgement has judges compare candidates, a reappraisal has a model write short cognitive reappraisals and a
    committee choose among them, a scoring job has a committee score texts. Reappraisals are a research artefact; this
    is not a clinical or mental-health tool and must not be used as one.

    With its items in the body (up to 10,000), or as a multipart upload of `job` and `items` (up to 1,000,000 lines).
    All items are accepted or none: a refusal lists what is wrong, the first 100 places.
    """
    _refuse_packed()
    if request.mimetype == JSON:
        submitted = _submit_json()
    elif request.mimetype == FORM:
        submitted = _submit_form()
    else:
        raise UnsupportedMediaType(f"a job is sent as {JSON} or {FORM}")
    return _queued(submitted)


def _refuse_packed() -> None:
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("a body is sent plain; the part items of an upload may be gzip")


def _json_body() -> bytes:
    request.max_content_length = min(LARGEST_JSON, parts().settings.max_upload_bytes)
    return request.get_data(cache=False)


def _submit_json() -> Submitted:
    at_hand = parts()
    submission, items = read_job_with_items(_json_body(), at_hand.fleet)
    return submit(at_hand.engine, tenant_id(), submission, items)


def _submit_form() -> Submitted:
    at_hand = parts()
    boundary = request.mimetype_params.get("boundary")
    if not boundary:
        raise InvalidMultipart("the form has no boundary")
    largest = at_hand.settings.max_upload_bytes
    request.max_content_length = largest
    stream = cast(BinaryIO, request.stream)
    with received(stream, boundary, largest, at_hand.settings.spool_dir) as upload:
        submission = read_job(upload.job, at_hand.fleet)
        items = Upload(upload.items, ItemReader(submission.terms.shape))
        return submit(at_hand.engine, tenant_id(), submission, items)


@blueprint.get(
    "/jobs",
    operation_id="list_jobs",
    responses=openapi.answers(HTTPStatus.OK, "Jobs, newest first", {JSON: JobPage}),
)
def list_all(query: JobsQuery) -> Response:
    """List jobs, newest first."""
    with session() as connection:
        views, last = list_jobs(connection, tenant_id(), query.limit, query.after_id, query.status)
    tail = escaped({"has_more": last is not None, "next": shown("job", last) if last else None})
    data = ",".join(view.as_json() for view in views)
    return Response(f'{{"data":[{data}],{tail[1:]}', mimetype=JSON)


@blueprint.get(
    "/jobs/<job_id>",
    operation_id="get_job",
    responses=openapi.answers(HTTPStatus.OK, "The job as it stands", {JSON: Job}, HTTPStatus.NOT_FOUND),
)
def get_job(path: JobPath, query: NoQuery) -> Response:  # noqa: ARG001 - declares that there are no parameters
    """Read a job.

    `ETag` with `If-None-Match` answers 304 while nothing has changed; `Retry-After` says when to ask again.
    """
    with session() as connection:
        view = load_job(connection, tenant_id(), path.id)
    response = _job(view, HTTPStatus.OK)
    response.make_conditional(request)
    return response


@blueprint.post(
    "/jobs/<job_id>/cancel",
    operation_id="cancel_job",
    responses=openapi.answers(HTTPStatus.OK, "The job, cancelling or ended", {JSON: Job}, HTTPStatus.NOT_FOUND),
)
def cancel_job(path: JobPath, query: NoQuery) -> Response:  # noqa: ARG001 - declares that there are no parameters
    """Cancel a job.

    Queued work stops, running calls are aborted, finished results stay. An ended job is returned unchanged.
    """
    with session() as connection:
        cancel(connection, tenant_id(), path.id, parts().settings.public_url)
        view = load_job(connection, tenant_id(), path.id)
    return _job(view, HTTPStatus.OK)


@blueprint.post(
    "/jobs/<job_id>/retry",
    operation_id="retry_job",
    request_body={"required": False, "content": {JSON: {"schema": openapi.schema(RetryRequest)}}},
    responses=openapi.answers(
        HTTPStatus.ACCEPTED,
        "The new job is in the queue",
        {JSON: Job},
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    ),
)
def retry_job(path: JobPath, query: NoQuery) -> Response:  # noqa: ARG001 - declares that there are no parameters
    """Try again what an ended job left without an answer.

    A new job, whose `retry_of` is this one, holds just its failed, expired and cancelled items, or those of them that
    `only` names, and is heard as this one was, by a new deadline. Each retry is another job. `nothing_to_retry` (409):
    there are no such items.
    """
    only = read_retry(_short_body())
    at_hand = parts()
    return _queued(submit_retry(at_hand.engine, tenant_id(), path.id, only, at_hand.fleet))


@blueprint.post(
    "/jobs/<job_id>/reread",
    operation_id="reread_job",
    request_body={"required": False, "content": {JSON: {"schema": openapi.schema(RereadRequest)}}},
    responses=openapi.answers(
        HTTPStatus.ACCEPTED,
        "The new job is in the queue",
        {JSON: Job},
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.CONFLICT,
        HTTPStatus.GONE,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    ),
)
def reread_job(path: JobPath, query: NoQuery) -> Response:  # noqa: ARG001 - declares that there are no parameters
    """Read a job's traces again.

    A new job, whose `reread_of` is this one, reads the stored completions with today's protocol and with the options
    given here. No runtime is asked anything. Items that were never heard to their end have expired in it. Where hearing
    stopped early, what decides stays as it was. `traces_pruned` (410): they are not kept any more.
    """
    wanted, metadata = read_reread(_short_body())
    at_hand = parts()
    return _queued(submit_reread(at_hand.engine, tenant_id(), path.id, wanted, metadata, at_hand.fleet))


@blueprint.delete(
    "/jobs/<job_id>",
    operation_id="delete_job",
    responses=openapi.answers(HTTPStatus.NO_CONTENT, "The job is gone", {}, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
)
def delete_job(path: JobPath, query: NoQuery) -> Response:  # noqa: ARG001 - declares that there are no parameters
    """Delete an ended job with its items, traces, results and events.

    It is gone at once, for good; an open job is cancelled first. Webhooks of it that are still to be delivered, or to
    be delivered again, are withdrawn: none leads to a job that is not there. Retries and rereads of it stay.
    """
    with session() as connection:
        delete(connection, tenant_id(), path.id)
    return Response(status=HTTPStatus.NO_CONTENT)


def _short_body() -> bytes:
    """The body of a request about a job that is there: JSON, or nothing at all."""
    _refuse_packed()
    body = _json_body()
    if body and request.mimetype != JSON:
        raise UnsupportedMediaType(f"a request about a job is sent as {JSON}")
    return body


def _queued(submitted: Submitted) -> Response:
    """The answer to a new job. Rings for it first: it has been committed."""
    log.info("job_queued", job=shown("job", submitted.job_id), models=submitted.models, chunks=submitted.chunks)
    at_hand = parts()
    for model in submitted.models:
        at_hand.metrics.submitted(model)
    at_hand.bell.ring(submitted.models, submitted.chunks)
    response = _job(submitted.view, HTTPStatus.ACCEPTED)
    response.headers["Location"] = f"/v1/jobs/{shown('job', submitted.job_id)}"
    return response


def _job(view: JobView, status: HTTPStatus) -> Response:
    response = Response(view.as_json(), status, mimetype=JSON)
    response.set_etag(view.etag, weak=True)
    response.headers["Cache-Control"] = "private, no-cache"
    if (seconds := view.retry_after) is not None:
        response.headers["Retry-After"] = str(seconds)
    return response
