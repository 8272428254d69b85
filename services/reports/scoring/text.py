"""The report of a scoring job as Markdown that reads well in a terminal too.

Guarantee: pure, and says nothing that the report does not hold. Every mean stands beside the number of its texts.
"""

from collections.abc import Iterator

from services.contract.reports.scoring import ScoringReport, SystemScore
from services.reports import committee_text
from services.reports.markup import brief, number, plain, span, table
from services.reports.sections import (
    Row,
    cost,
    failures,
    heard,
    notes,
    outcomes,
    over_clusters,
    suspected,
    system,
    title,
)

SCORES = (
    "system",
    "texts scored",
    "mean score",
    "95 % over clusters",
    "clusters",
    "t over clusters",
    "mean disagreement",
)


def sections(report: ScoringReport) -> Iterator[str]:
    """The whole report, part by part."""
    yield title(report.job)
    yield f"{heard(report.job, report.items)} by the committee {plain(report.job.committee)}."
    yield "## Scores"
    yield table(SCORES, [_score(score) for score in report.systems])
    yield f"A score is the mean - 0.5 * std of the members' z. {over_clusters(report.systems)}".rstrip()
    yield "## The committee"
    yield from committee_text.sections(report.committee)
    yield "## What stands beside it"
    yield outcomes([*failures(report.items), suspected(report.items)])
    yield "## Cost"
    yield cost(report.usage)
    yield from notes(report.notes, named=False)


def _score(score: SystemScore) -> Row:
    return (
        system(score.system),
        brief(score.scored),
        number(score.mean),
        span(score.bootstrap),
        str(score.clusters),
        span(score.t),
        number(score.disagreement),
    )
