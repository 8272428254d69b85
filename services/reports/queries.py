"""Reading what a report is made of.

Guarantee: the tenant is named, so another tenant's job is not there. Items come out of one snapshot through a
server-side cursor, without their texts, and the opinions of at most `FETCH` items are held at once.
"""

from collections.abc import Iterator
from uuid import UUID

from sqlalchemy import Engine, text

from services.contract.jobs import JobSettings, JudgeSettings
from services.contract.reports import Report, ReportedJob, ReportedJudge
from services.foundation.database import transaction
from services.foundation.errors import NotFound
from services.foundation.identifiers import shown
from services.reports.build import build
from services.reports.item import ItemRow, item_row

JOB = text(
    """
    SELECT id, name, status, settings, total, created_at, started_at, ended_at, reread_of FROM job
    WHERE tenant_id = :tenant_id AND id = :job_id
    """
)
# Of an opinion's standing a report reads the winner alone. Bodies come as text, which takes less than parsed ones.
HEARD = text(
    """
    SELECT verdict.seq, verdict.status, verdict.winner, verdict.standing, verdict.disagreement, verdict.error_code,
           verdict.calls, verdict.prompt_tokens, verdict.cached_tokens, verdict.completion_tokens, item.facets,
           ARRAY(
               SELECT (opinion.body || jsonb_build_object(
                   'standing',
                   NULLIF(opinion.body -> 'standing', 'null')
                       || '{"scores": [], "matrix": [], "strengths": null, "adjusted": null}'
               ))::text
               FROM opinion WHERE opinion.job_id = verdict.job_id AND opinion.seq = verdict.seq
           ) AS opinions
    FROM verdict
    JOIN item ON item.job_id = verdict.job_id AND item.seq = verdict.seq
    WHERE verdict.job_id = :job_id ORDER BY verdict.seq
    """
)
FETCH = 100  # items at once: of 16 candidates and 8 judges some 20 MB


def report(engine: Engine, tenant_id: UUID, job_id: UUID) -> Report:
    """The report of a job over the items heard so far. Raises NotFound, also for another tenant's job."""
    with transaction(engine) as connection:
        job = connection.execute(JOB, {"tenant_id": tenant_id, "job_id": job_id}).mappings().first()
    if job is None:
        raise NotFound("there is no such job")
    settings = JobSettings.model_validate_json(job["settings"])
    reported = ReportedJob(
        id=shown("job", job_id),
        name=job["name"],
        status=job["status"],
        judges=tuple(_judge(name, judge) for name, judge in settings.judges.items()),
        created_at=job["created_at"],
        started_at=job["started_at"],
        ended_at=job["ended_at"],
        reread_of=shown("job", job["reread_of"]) if job["reread_of"] else None,
    )
    return build(reported, job["total"], _heard(engine, job_id))


def _judge(name: str, settings: JudgeSettings) -> ReportedJudge:
    return ReportedJudge(
        name=name,
        mode=settings.mode,
        orders=settings.orders,
        samples=settings.samples,
        decide=settings.decide,
        early_stop=settings.early_stop,
    )


def _heard(engine: Engine, job_id: UUID) -> Iterator[ItemRow]:
    """The heard items by `seq`. The transaction ends with the last one, before any statistics are worked out."""
    with transaction(engine) as connection:
        rows = connection.execute(HEARD, {"job_id": job_id}, execution_options={"yield_per": FETCH})
        for row in rows.mappings():
            yield item_row(row)
