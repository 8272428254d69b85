"""How errors are told: the one table from codes to HTTP statuses, and RFC 9457 bodies.

Guarantee: whatever goes wrong, the answer is a problem document with a stable code and the request's id; what went
wrong inside stands in the log, never in the answer.
"""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import ClassVar

import psycopg
import sqlalchemy.exc
import structlog
from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException

from services.contract.problems import Problem, ProblemFault
from services.foundation.errors import AssizesError, Fault, Invalid

log = structlog.get_logger(__name__)

PROBLEM = "application/problem+json"

STATUSES: Mapping[str, HTTPStatus] = {
    "bad_request": HTTPStatus.BAD_REQUEST,
    "invalid_json": HTTPStatus.BAD_REQUEST,
    "invalid_multipart": HTTPStatus.BAD_REQUEST,
    "unauthorized": HTTPStatus.UNAUTHORIZED,
    "not_found": HTTPStatus.NOT_FOUND,
    "method_not_allowed": HTTPStatus.METHOD_NOT_ALLOWED,
    "conflict": HTTPStatus.CONFLICT,
    "fenced": HTTPStatus.CONFLICT,
    "nothing_to_retry": HTTPStatus.CONFLICT,
    "traces_pruned": HTTPStatus.GONE,
    "payload_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "unsupported_media_type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "invalid_request": HTTPStatus.UNPROCESSABLE_ENTITY,
    "no_items": HTTPStatus.UNPROCESSABLE_ENTITY,
    "database_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "spool_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
}


DETAILS: Mapping[HTTPStatus, str] = {
    HTTPStatus.NOT_FOUND: "there is nothing here; /docs shows what there is",
    HTTPStatus.METHOD_NOT_ALLOWED: "this path does not take this method; the header Allow names those it takes",
}


class Unauthorized(AssizesError):
    """No key, or one that is unknown or revoked."""

    code = "unauthorized"


class PayloadTooLarge(AssizesError):
    """The body is larger than this service takes."""

    code = "payload_too_large"


class UnsupportedMediaType(AssizesError):
    """The body's type or encoding is not one that this call reads."""

    code = "unsupported_media_type"


class InvalidMultipart(AssizesError):
    """The body is no multipart form, or not a whole one."""

    code = "invalid_multipart"


class DatabaseUnavailable(AssizesError):
    """PostgreSQL cannot be reached or cannot write now."""

    code = "database_unavailable"
    retryable: ClassVar[bool] = True


class SpoolUnavailable(AssizesError):
    """The disk for uploads cannot take this one now."""

    code = "spool_unavailable"
    retryable: ClassVar[bool] = True


def problem(error: AssizesError) -> Response:
    """The answer that tells of `error`. A code without a status is a fault of ours: 500."""
    faults: Sequence[Fault] = error.faults if isinstance(error, Invalid) else ()
    total = error.total if isinstance(error, Invalid) else 0
    status = STATUSES.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)
    return _response(status, error.code, error.message, retryable=error.retryable, faults=faults, total=total)


def _response(
    status: HTTPStatus,
    code: str,
    detail: str,
    *,
    retryable: bool = False,
    faults: Sequence[Fault] = (),
    total: int = 0,
) -> Response:
    body = Problem(
        title=status.phrase,
        status=status,
        code=code,
        detail=detail,
        request_id=g.get("request_id", ""),
        retryable=retryable,
        errors=[ProblemFault(pointer=f.pointer, code=f.code, message=f.message, line=f.line) for f in faults],
        error_count=total,
    )
    response = Response(body.model_dump_json(ensure_ascii=True, exclude_none=True), status, mimetype=PROBLEM)
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="assizes"'
    if retryable:
        response.headers["Retry-After"] = "2"
    return response


def _http(error: HTTPException) -> Response:
    """What the framework itself refuses: unknown paths and methods, bodies that are too large or end early."""
    status = HTTPStatus(error.code or 500)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return problem(PayloadTooLarge("the body is too large"))
    code = re.sub(r"[^a-z]+", "_", error.name.lower())
    response = _response(status, code, DETAILS.get(status, error.description or status.phrase))
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response


def _database(error: Exception) -> Response:
    log.error("database_unavailable", route=_route(), error=type(getattr(error, "orig", None) or error).__name__)
    return problem(DatabaseUnavailable("the database cannot answer now"))


def _unexpected(error: Exception) -> Response:
    log.error("request_failed", method=request.method, route=_route(), exc_info=error)
    return _response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", "something went wrong inside")


def _route() -> str | None:
    """What the request's path was matched to: the path itself is the caller's text."""
    return request.url_rule.rule if request.url_rule else None


def install(app: Flask) -> None:
    """Answer every error of `app` as a problem."""
    app.register_error_handler(AssizesError, problem)
    app.register_error_handler(HTTPException, _http)
    for unavailable in (
        sqlalchemy.exc.OperationalError,
        sqlalchemy.exc.InterfaceError,
        sqlalchemy.exc.InternalError,  # what a read-only server answers
        sqlalchemy.exc.TimeoutError,
        psycopg.OperationalError,
        psycopg.InternalError,
    ):
        app.register_error_handler(unavailable, _database)
    app.register_error_handler(Exception, _unexpected)
