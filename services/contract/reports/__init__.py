"""The report of a job on the wire, a shape for each kind of job.

Guarantee: every rate stands beside its count and its denominator; a rate over nothing is null, never 0.
"""

from typing import Annotated

from pydantic import Field, RootModel

from services.contract.reports.judgement import JudgementReport
from services.contract.reports.reappraisal import ReappraisalReport
from services.contract.reports.scoring import ScoringReport

AnyReport = JudgementReport | ReappraisalReport | ScoringReport


class Report(RootModel[Annotated[AnyReport, Field(discriminator="kind")]]):
    """The statistics of one job, over the items heard so far, by the job's kind."""
