"""Building the report of a reappraisal job: one pass over its items.

Guarantee: pure, and bounded: it keeps a few bytes an item and no text but the names of systems. What is undefined is
None. What flatters the figures stands in the notes.
"""

from collections.abc import Iterable, Iterator

from services.contract.jobs import NOT_CLINICAL
from services.contract.options import CommitteeSettings
from services.contract.reports.parts import Note
from services.contract.reports.reappraisal import ReappraisalReport, ReportedReappraisal
from services.reports.notes import note, on_items
from services.reports.reappraisal.choice import ChoiceTally
from services.reports.reappraisal.comparison import ComparisonTally
from services.reports.reappraisal.gate import GateTally
from services.reports.reappraisal.item import ReappraisalRow
from services.reports.settled import SettledTally
from services.vocabulary import Flag, JobKind

FAILED = "have no chosen text: they are in no mean and in no win rate"


def build(
    job: ReportedReappraisal, committee: CommitteeSettings | None, total: int, rows: Iterable[ReappraisalRow]
) -> ReappraisalReport:
    """The report of a job of `total` items over the heard ones. `rows` is consumed once, in any order."""
    tally = _Tally(job, committee)
    for row in rows:
        tally.add(row)
    return tally.report(total)


class _Tally:
    """What one pass keeps."""

    def __init__(self, job: ReportedReappraisal, committee: CommitteeSettings | None) -> None:
        self._job = job
        self._models = () if committee is None else committee.models
        self._items = SettledTally()
        self._gate = GateTally()
        self._choice = None if committee is None else ChoiceTally(committee)
        self._comparison = None if job.compare is None else ComparisonTally(job.model, job.compare)

    def add(self, row: ReappraisalRow) -> None:
        """Count one item."""
        flags = frozenset() if row.opinion is None else row.opinion.flags
        self._items.add(row, suspected=row.suspected or Flag.INJECTION_SUSPECTED in flags)
        self._gate.add(row)
        if self._choice is not None and row.assessed is not None:
            self._choice.add(row.assessed, row.selected)
        if self._comparison is not None:
            self._comparison.add(row)

    def report(self, total: int) -> ReappraisalReport:
        """The report, out of what was counted."""
        report = ReappraisalReport(
            kind=JobKind.REAPPRAISAL,
            job=self._job,
            items=self._items.items(total),
            gate=self._gate.report(),
            committee=None if self._choice is None else self._choice.report(),
            comparison=None if self._comparison is None else self._comparison.report(),
            usage=self._items.usage(self._job),
            notes=(),
        )
        return report.model_copy(update={"notes": tuple(self._notes(report))})

    def _notes(self, report: ReappraisalReport) -> Iterator[Note]:
        yield note("not_clinical", NOT_CLINICAL)
        yield from on_items(report.items, self._items, "vignette", FAILED)
        yield from self._on_selection(report)
        if self._comparison is not None and report.comparison is not None:
            yield from self._comparison.notes(report.comparison)

    def _on_selection(self, report: ReappraisalReport) -> Iterator[Note]:
        """What selecting does to the figures of what was selected."""
        job = self._job
        if self._choice is not None and self._choice.several:
            yield note(
                "selected_for",
                "Each chosen text has the highest of the very scores that it was selected by, so the mean score of the "
                "chosen texts overestimates how good they are.",
            )
        if report.committee is not None and report.committee.normalise == "group":
            yield note(
                "normalised_within_items",
                "Scores are counted from the mean of each item's own texts: they say which text is better, and their "
                "means nothing of how good the texts are.",
            )
        if job.compare is not None and job.compare.name in self._models:
            yield note(
                "winners_curse",
                "The judge that compares is one of the committee's models: the texts were selected by what it prefers, "
                "so its comparison flatters them. Let a judge compare that is not in the committee.",
                job.compare.name,
            )
        if job.pool is not None and job.pool in job.selected_on:
            yield note(
                "pool_shared",
                "What writes or chooses was selected on the very pool that it is evaluated on here, so these figures "
                "flatter it. Confirm them on a pool that selected nothing.",
            )
        chooses = job.candidates > 1 or job.committee is not None
        if job.compare is not None and chooses and job.pool is None:
            yield note(
                "pool_unknown",
                "The job names no pool, so nothing tells whether what writes or chooses was selected on these very "
                "scenarios. If it was, the comparison flatters it.",
            )
