"""What a report says of a committee."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from services.contract.reports.parts import Proportion, ReportPart
from services.vocabulary import Outcome


class MemberReport(ReportPart):
    """What one member gave. `mean` and `std` are those of its z, over the texts that every member scored."""

    name: str
    models: tuple[str, ...]
    weight: float
    scored: Proportion = Field(description="of the texts that it was to score")
    unscored: Mapping[Outcome, int] = Field(
        description="the others, by what the first of its models that failed came to"
    )
    mean: float | None
    std: float | None = Field(description="as of a population; null over fewer than two texts")


class MemberCorrelation(ReportPart):
    """How far two members go together: Pearson's r of their z, over the texts that every member scored."""

    members: tuple[str, str]
    r: float | None = Field(description="null where a member gives all texts the same z")
    texts: int = Field(description="over how many texts: two of them always correlate wholly")


class CommitteeReport(ReportPart):
    """What a committee made of the texts that it was to score. Means are over those that every member scored."""

    name: str
    normalise: Literal["reference", "group"]
    scored: Proportion = Field(
        description="of the texts that were to be scored, those with a score: every member gave one"
    )
    score: float | None = Field(description="the mean score: of each text the mean - 0.5 * std of the members' z")
    disagreement: float | None = Field(description="the mean over texts of the std of the members' z")
    members: tuple[MemberReport, ...]
    correlations: tuple[MemberCorrelation, ...] = Field(description="one a pair of members")
