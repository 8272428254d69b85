"""Which brief a stage is worked by."""

from collections.abc import Mapping

from services.jobs.docket import Brief
from services.jobs.hear import Compare, Hear
from services.jobs.reappraise import Reappraise
from services.jobs.score import Score
from services.vocabulary import Stage

BRIEFS: Mapping[Stage, Brief] = {
    Stage.HEAR: Hear(),
    Stage.REAPPRAISE: Reappraise(),
    Stage.SCORE: Score(),
    Stage.COMPARE: Compare(),
}
