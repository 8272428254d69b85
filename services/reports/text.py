"""A report as Markdown that reads well in a terminal too.

Guarantee: pure, and says nothing that the report does not hold.
"""

from services.contract.reports import AnyReport
from services.contract.reports.judgement import JudgementReport
from services.contract.reports.reappraisal import ReappraisalReport
from services.contract.reports.scoring import ScoringReport
from services.reports.judgement.text import sections as of_judgement
from services.reports.reappraisal.text import sections as of_reappraisal
from services.reports.scoring.text import sections as of_scoring


def markdown(report: AnyReport) -> str:
    """The whole report, ending in a newline."""
    match report:
        case JudgementReport():
            sections = of_judgement(report)
        case ReappraisalReport():
            sections = of_reappraisal(report)
        case ScoringReport():
            sections = of_scoring(report)
    return "\n\n".join(sections) + "\n"
