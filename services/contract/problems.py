"""What callers see when something is wrong: RFC 9457 problem details."""

from pydantic import BaseModel, Field


class ProblemFault(BaseModel):
    """One place in a request that is wrong."""

    pointer: str = Field(
        description="JSON pointer (RFC 6901) into the body, into the item on `line`, or to a query parameter's name",
        examples=["/items/3/candidates/0/content"],
    )
    code: str = Field(examples=["invalid_value"])
    message: str = Field(examples=["a candidate's content is a string"])
    line: int | None = Field(default=None, description="the line of an upload, from 1")


class Problem(BaseModel):
    """An error. `code` is stable and meant for programs, `detail` for people."""

    type: str = Field(default="about:blank")
    title: str = Field(description="the status in words", examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    code: str = Field(examples=["invalid_request"])
    detail: str
    request_id: str = Field(description="also in the header X-Request-Id; stands in the server's logs")
    retryable: bool = Field(description="true when the very same request may succeed later")
    errors: list[ProblemFault] = Field(default=[], description="what is wrong in the request, the first 100 places")
    error_count: int = Field(default=0, description="how many places are wrong in all")
