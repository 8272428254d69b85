"""Items on the wire, a shape for each kind of job.

Guarantee: these describe what intake accepts (`services/jobs/intake.py`, which reads items one by one and says what is
wrong with each); an item comes back exactly as sent.
"""

from typing import Any, Literal

from pydantic import Field

from services.contract.options import MOST_CANDIDATES, Request

MOST_BASELINES = MOST_CANDIDATES - 1  # they are compared together with the chosen text


class Message(Request):
    """One turn of a context."""

    role: Literal["user", "assistant"]
    content: str = Field(description="not blank")


class Candidate(Request):
    """One of the texts to compare."""

    content: str = Field(description="may be empty")
    system: str | None = Field(default=None, description="who wrote it; reports count wins by system")


class ItemRequest(Request):
    """What items of every kind have."""

    custom_id: str = Field(min_length=1, max_length=512, description="unique in the job")
    cluster: str | None = Field(default=None, description="items of a cluster are not independent of each other")
    metadata: dict[str, Any] | None = Field(default=None, description="kept and given back as sent")


class Comparison(ItemRequest):
    """An item of a judgement: also one line of an upload."""

    context: list[Message] = Field(min_length=1, description="alternates, starts and ends with `user`")
    candidates: list[Candidate] = Field(min_length=2, max_length=MOST_CANDIDATES)
    label: Literal["A", "B", "tie"] | int | None = Field(
        default=None,
        description="a human's answer, for the report; of more than two candidates the best one's index, or \"tie\"",
    )


class Scenario(ItemRequest):
    """An item of a reappraisal: also one line of an upload."""

    scenario: str = Field(description="what happened, told by or about the person who is addressed; not blank")
    baseline: str | Candidate | list[str | Candidate] | None = Field(
        default=None, description=f"1 to {MOST_BASELINES} texts to compare with; needed where the job compares"
    )


class Response(ItemRequest):
    """An item of a scoring job: also one line of an upload."""

    context: list[Message] = Field(min_length=1, description="alternates, starts and ends with `user`")
    response: str = Field(description="the text to score; may be empty")
    system: str | None = Field(default=None, description="who wrote it; reports have mean scores by system")


Item = Comparison | Scenario | Response
