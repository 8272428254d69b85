"""Path and query parameters.

Guarantee: an unknown query parameter is refused, since it would have meant something to its sender.
"""

from typing import Annotated
from uuid import UUID

from flask import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.foundation.errors import Fault, Invalid, NotFound
from services.foundation.identifiers import parsed
from services.jobs.results import START, Cursor
from services.vocabulary import ItemStatus, JobStatus

NDJSON = "application/x-ndjson"


class JobPath(BaseModel):
    """A job's place."""

    job_id: str = Field(description="a job's id", examples=["job_0199f2a4c1d87e0f9a3b5c6d7e8f9012"])

    @property
    def id(self) -> UUID:
        """The identifier inside. Raises NotFound when no job could have it."""
        found = parsed("job", self.job_id)
        if found is None:
            raise NotFound("there is no such job")
        return found


class Query(BaseModel):
    """The base of query parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NoQuery(Query):
    """No parameter at all."""


class JobsQuery(Query):
    """A page of jobs."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    after: str | None = Field(default=None, description="`next` of the page before")
    status: JobStatus | None = None

    @property
    def after_id(self) -> UUID | None:
        """The job after which to go on. Raises Invalid."""
        if self.after is None:
            return None
        found = parsed("job", self.after)
        if found is None:
            raise wrong_parameter("after", "not a cursor of this list")
        return found


class ResultsQuery(Query):
    """Some results, or one."""

    limit: Annotated[int, Field(ge=1, le=1000)] | None = Field(default=None, description="of a page; default 100")
    after: str | None = Field(default=None, description="`next` of the page before")
    status: ItemStatus | None = None
    custom_id: str | None = Field(default=None, description="this item alone, with its opinions and traces")

    @property
    def cursor(self) -> Cursor:
        """Where to go on. Raises Invalid."""
        if self.after is None:
            return START
        found = Cursor.parsed(self.after)
        if found is None:
            raise wrong_parameter("after", "not a cursor of these results")
        return found


def wrong_parameter(name: str, message: str) -> Invalid:
    """The error of a query parameter that cannot be used."""
    return Invalid("a query parameter is wrong", [Fault("invalid_value", f"/{name}", message)])


def refuse(error: ValidationError) -> None:
    """Tell of wrong path or query parameters. Raises Invalid."""
    faults = [
        Fault(
            "unknown_field" if wrong["type"] == "extra_forbidden" else "invalid_value",
            "/" + "/".join(str(step) for step in wrong["loc"]),
            wrong["msg"],
        )
        for wrong in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    raise Invalid("a query parameter is wrong", faults)


def wants(request: Request, *kinds: str) -> str:
    """Which of `kinds` the caller would rather have; the first when nothing is said."""
    return request.accept_mimetypes.best_match(kinds) or kinds[0]
