"""Trying again what an ended job left without an answer: a new job that holds just those items.

Guarantee: the new job is heard as the old one was, with the settings, priority, metadata and callback that it had, by a
deadline of its own. Its items are copied within the database, in their order, under their own custom ids; what the old
job came to stays as it is. Two retries of one job are two jobs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, get_args
from uuid import UUID

from sqlalchemy import Engine, text

from services.contract.jobs import DEFAULT_DEADLINE, RetriedStatus, RetryRequest
from services.contract.options import (
    CommitteeSettings,
    JobSettings,
    JudgeSettings,
    ReappraisalSettings,
    ScoringSettings,
    Settings,
    read_settings,
)
from services.foundation.database import transaction
from services.foundation.errors import Conflict, Fault, Invalid, Misconfigured, NothingToRetry
from services.foundation.fleet import Fleet
from services.foundation.identifiers import new_id
from services.jobs.options import DOES, contradictions, family_of
from services.jobs.partitions import ensure_partition
from services.jobs.queries import load_job, lock_ended
from services.jobs.request import read_of_job
from services.jobs.stages import lay_out, plan
from services.jobs.submit import Submitted
from services.vocabulary import ItemStatus, Priority, Stage, Task

REFUSED = "the job cannot be tried again"
UNANSWERED: Sequence[ItemStatus] = get_args(RetriedStatus)

IS_REREAD = text(f"SELECT EXISTS (SELECT 1 FROM chunk WHERE job_id = :source AND stage = '{Stage.REREAD}')")

# An item without a verdict is what the chunk that settles it is. The inner order keeps the planner to one look-up a
# chunk, the limit to one an item: it takes both for far larger than they are.
COPY_ITEMS = text(
    """
    INSERT INTO item (job_id, seq, custom_id, custom_id_hash, input, facets)
    SELECT :id, chosen.place, item.custom_id, item.custom_id_hash, item.input, item.facets
    FROM (
        SELECT unanswered.seq, row_number() OVER (ORDER BY unanswered.seq) - 1 AS place
        FROM chunk CROSS JOIN LATERAL (
            SELECT item.seq FROM item LEFT JOIN LATERAL (
                SELECT status FROM verdict WHERE verdict.job_id = item.job_id AND verdict.seq = item.seq LIMIT 1
            ) AS verdict ON true
            WHERE item.job_id = chunk.job_id AND item.seq >= chunk.first_seq AND item.seq < chunk.end_seq
              AND coalesce(verdict.status, chunk.state) = ANY(:only)
            ORDER BY item.seq
        ) AS unanswered
        WHERE chunk.job_id = :source AND chunk.settles
    ) AS chosen JOIN item ON item.job_id = :source AND item.seq = chosen.seq
    """
)

ADD_JOB = text(
    """
    INSERT INTO job (id, tenant_id, day, kind, status, priority, judges, settings, name, metadata_json, callback,
                     total, created_at, deadline, retry_of)
    SELECT :id, tenant_id, (now() AT TIME ZONE 'utc')::date, kind, 'queued', priority, judges, settings, name,
           metadata_json, callback, :total, now(), now() + :open_for, id
    FROM job WHERE id = :source
    RETURNING day
    """
)

CALLS = text(
    "SELECT stage, model, max(calls_per_item) AS calls FROM chunk WHERE job_id = :source GROUP BY stage, model"
)

# An ordinal may lie in parts.
CHUNK_SIZE = text(
    """
    SELECT max(items) FROM (
        SELECT max(end_seq) - min(first_seq) AS items FROM chunk WHERE job_id = :source AND settles GROUP BY ordinal
    ) AS laid_out
    """
)


class Role(NamedTuple):
    """What a model does in a job, and how it hears if it is a judge; `grades`: texts, one by one."""

    model: str
    task: Task
    how: JudgeSettings | None = None
    grades: bool = False


def read_retry(body: bytes) -> Sequence[ItemStatus]:
    """Which items are to be tried again. Nothing at all asks for every one without an answer.

    Raises Malformed, Invalid.
    """
    request, _ = read_of_job(body, RetryRequest, REFUSED)
    return UNANSWERED if request.only is None else request.only


def submit_retry(
    engine: Engine, tenant_id: UUID, source_id: UUID, only: Sequence[ItemStatus], fleet: Fleet
) -> Submitted:
    """Queue a job of those items of an ended one that came to `only`.

    Raises NotFound, also for another tenant's job; Conflict while that one has not ended, and for one that reads
    another one's traces; NothingToRetry; Invalid when the fleet cannot hear it any more.
    """
    job_id = new_id()
    with transaction(engine) as connection:
        source = lock_ended(connection, tenant_id, source_id)
        named = {"id": job_id, "source": source_id}
        if connection.scalar(IS_REREAD, named):
            raise Conflict("this job reads the traces of another one, which is the one to try again")
        settings = read_settings(source["kind"], source["settings"])
        if faults := [*_misfits(settings, fleet)]:
            raise Invalid(REFUSED, faults)
        total = connection.execute(COPY_ITEMS, {**named, "only": list(only)}).rowcount
        if total == 0:
            raise NothingToRetry(f"no item of this job is {' or '.join(only)}")
        day = connection.scalar(ADD_JOB, {**named, "total": total, "open_for": DEFAULT_DEADLINE})
        steps = plan(settings)
        size = connection.execute(CHUNK_SIZE, named).scalar_one()
        calls = {step.stage: dict.fromkeys(step.models, 0) for step in steps}
        for row in connection.execute(CALLS, named):
            calls[Stage(row.stage)][row.model] = row.calls
        chunks = lay_out(connection, job_id, steps, calls, total, size, Priority(source["priority"]))
        ensure_partition(connection, day)
        return Submitted(job_id, steps[0].models, chunks, load_job(connection, tenant_id, job_id))


def _misfits(settings: Settings, fleet: Fleet) -> Iterator[Fault]:
    """What keeps the fleet, as it is now, from hearing a job as its settings say."""
    for role in _roles(settings):
        try:
            family = family_of(fleet, role.model)
        except Misconfigured as error:
            yield Fault("unknown_model", "", f"{role.model}: {error.message}")
            continue
        if family.task is not role.task:
            yield Fault("unsuitable_model", "", f"{role.model} {DOES[family.task]}")
        elif role.grades and family.slots != 1:
            yield Fault("unsuitable_model", "", f"{role.model} does not grade texts one by one")
        elif role.how is not None:
            yield from (replace(fault, pointer="") for fault in contradictions(role.model, role.how, family))


def _roles(settings: Settings) -> Iterator[Role]:
    match settings:
        case JobSettings(judges=judges):
            yield from (Role(judge, Task.JUDGE, how) for judge, how in judges.items())
        case ReappraisalSettings(model=model, committee=committee, judges=judges):
            yield Role(model, Task.WRITE)
            yield from (Role(judge, Task.JUDGE, how) for judge, how in judges.items())
            yield from () if committee is None else _members(committee)
        case ScoringSettings(committee=committee):
            yield from _members(committee)


def _members(committee: CommitteeSettings) -> Iterator[Role]:
    for model in committee.models:
        how = committee.judges.get(model)
        yield Role(model, Task.SCORE) if how is None else Role(model, Task.JUDGE, how, grades=True)
