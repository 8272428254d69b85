"""Reading what a report is made of.

Guarantee: the tenant is named, so another tenant's job is not there. Items come out of one snapshot through a
server-side cursor, without their texts, and what the stages left of at most `FETCH` items is held at once.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Engine, RowMapping, TextClause, text

from services.contract.options import (
    JobSettings,
    JudgeSettings,
    ReappraisalSettings,
    ScoringSettings,
    read_settings,
)
from services.contract.reports import AnyReport
from services.contract.reports.judgement import ReportedJudgement
from services.contract.reports.parts import ReportedJudge
from services.contract.reports.reappraisal import ReportedReappraisal
from services.contract.reports.scoring import ReportedScoring
from services.foundation.database import transaction
from services.foundation.errors import NotFound
from services.foundation.identifiers import shown
from services.reports.item import item_row
from services.reports.judgement.build import build as judgement
from services.reports.reappraisal.build import build as reappraisal
from services.reports.reappraisal.item import reappraisal_row
from services.reports.scoring.build import build as scoring
from services.reports.scoring.item import scoring_row
from services.vocabulary import Flag

JOB = text(
    """
    SELECT id, kind, name, status, settings, total, created_at, started_at, ended_at, reread_of FROM job
    WHERE tenant_id = :tenant_id AND id = :job_id AND deleted_at IS NULL
    """
)
SETTLED = """
    verdict.seq, verdict.status, verdict.error_code, verdict.calls, verdict.prompt_tokens, verdict.cached_tokens,
    verdict.completion_tokens, item.facets
"""
SUSPECTED = f"""
    EXISTS (
        SELECT 1 FROM score
        WHERE score.job_id = verdict.job_id AND score.seq = verdict.seq
          AND '{Flag.INJECTION_SUSPECTED}' = ANY(score.flags)
    )
"""
CLASSIFIED = """
    coalesce((
        SELECT sum(score.prompt_tokens) FROM score
        WHERE score.job_id = verdict.job_id AND score.seq = verdict.seq AND score.model = ANY(:classifiers)
    ), 0) AS classified_tokens
"""
OF_JOB = "WHERE verdict.job_id = :job_id ORDER BY verdict.seq"
# Of an opinion's standing a report reads the winner alone. Bodies come as text, which takes less than parsed ones.
HEARD = text(
    f"""
    SELECT {SETTLED}, verdict.winner, verdict.standing, verdict.disagreement,
           ARRAY(
               SELECT (opinion.body || jsonb_build_object(
                   'standing',
                   NULLIF(opinion.body -> 'standing', 'null')
                       || '{{"scores": [], "matrix": [], "strengths": null, "adjusted": null}}'
               ))::text
               FROM opinion WHERE opinion.job_id = verdict.job_id AND opinion.seq = verdict.seq
           ) AS opinions
    FROM verdict
    JOIN item ON item.job_id = verdict.job_id AND item.seq = verdict.seq
    {OF_JOB}
    """
)
# What was written is JSON text without blanks; inside of its strings every quotation mark stands behind a backslash, so
# that this finds the members `text` alone. PostgreSQL's own functions refuse the NUL that such a text may hold.
REAPPRAISED = text(
    rf"""
    SELECT {SETTLED}, {CLASSIFIED}, assessment.selected, assessment.body AS assessment, opinion.body::text AS opinion,
           regexp_replace(reappraisal.texts, '"text":"([^"\\]|\\.)*"', '"text":""', 'g') AS texts,
           {SUSPECTED} OR coalesce('{Flag.INJECTION_SUSPECTED}' = ANY(reappraisal.flags), false) AS suspected
    FROM verdict
    JOIN item ON item.job_id = verdict.job_id AND item.seq = verdict.seq
    LEFT JOIN reappraisal ON reappraisal.job_id = verdict.job_id AND reappraisal.seq = verdict.seq
    LEFT JOIN assessment ON assessment.job_id = verdict.job_id AND assessment.seq = verdict.seq
    LEFT JOIN opinion ON opinion.job_id = verdict.job_id AND opinion.seq = verdict.seq
    {OF_JOB}
    """
)
SCORED = text(
    f"""
    SELECT {SETTLED}, {CLASSIFIED}, assessment.body AS assessment, {SUSPECTED} AS suspected
    FROM verdict
    JOIN item ON item.job_id = verdict.job_id AND item.seq = verdict.seq
    LEFT JOIN assessment ON assessment.job_id = verdict.job_id AND assessment.seq = verdict.seq
    {OF_JOB}
    """
)
FETCH = 100  # items at once: of 16 candidates and 8 judges some 20 MB

Row = TypeVar("Row")


def report(engine: Engine, tenant_id: UUID, job_id: UUID) -> AnyReport:
    """The report of a job over the items heard so far. Raises NotFound, also for another tenant's job."""
    with transaction(engine) as connection:
        job = connection.execute(JOB, {"tenant_id": tenant_id, "job_id": job_id}).mappings().first()
    if job is None:
        raise NotFound("there is no such job")
    match read_settings(job["kind"], job["settings"]):
        case JobSettings() as settings:
            rows = _rows(engine, HEARD, item_row, job_id=job_id)
            return judgement(_judgement(job, settings), job["total"], rows)
        case ReappraisalSettings() as settings:
            classifiers = [] if settings.committee is None else list(settings.committee.classifiers)
            scenarios = _rows(engine, REAPPRAISED, reappraisal_row, job_id=job_id, classifiers=classifiers)
            return reappraisal(_reappraisal(job, settings), settings.committee, job["total"], scenarios)
        case ScoringSettings(committee=committee):
            reported = ReportedScoring(**_job(job), committee=committee.name)
            texts = _rows(engine, SCORED, scoring_row, job_id=job_id, classifiers=list(committee.classifiers))
            return scoring(reported, committee, job["total"], texts)


def _judgement(job: RowMapping, settings: JobSettings) -> ReportedJudgement:
    return ReportedJudgement(
        **_job(job),
        judges=tuple(_judge(name, judge) for name, judge in settings.judges.items()),
        reread_of=shown("job", job["reread_of"]) if job["reread_of"] else None,
    )


def _reappraisal(job: RowMapping, settings: ReappraisalSettings) -> ReportedReappraisal:
    compares = settings.compare
    return ReportedReappraisal(
        **_job(job),
        model=settings.model,
        candidates=settings.candidates,
        gate_retries=settings.gate_retries,
        committee=None if settings.committee is None else settings.committee.name,
        compare=None if compares is None else _judge(compares, settings.judges[compares]),
        pool=settings.pool,
        selected_on=tuple(settings.selected_on),
    )


def _job(job: RowMapping) -> dict[str, Any]:
    """The fields of ReportedJob."""
    same = ("name", "status", "created_at", "started_at", "ended_at")
    return {"id": shown("job", job["id"])} | {name: job[name] for name in same}


def _judge(name: str, settings: JudgeSettings) -> ReportedJudge:
    return ReportedJudge(
        name=name,
        mode=settings.mode,
        orders=settings.orders,
        samples=settings.samples,
        decide=settings.decide,
        early_stop=settings.early_stop,
    )


def _rows(
    engine: Engine, query: TextClause, row_of: Callable[[Mapping[Any, Any]], Row], **bound: object
) -> Iterator[Row]:
    """The heard items by `seq`. The transaction ends with the last one, before any statistics are worked out."""
    with transaction(engine) as connection:
        rows = connection.execute(query, bound, execution_options={"yield_per": FETCH})
        for row in rows.mappings():
            yield row_of(row)
