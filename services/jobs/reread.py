"""Reading stored traces again: a new job that asks no runtime anything.

Guarantee: the raw completions are what the first job heard, read by today's protocol and the options that were asked
for. What today's reading would ask on top is not asked, and stands in for nothing. The new job holds everything it
rests on, items and traces, so it outlives the first.
"""

import json
from collections.abc import Mapping
from itertools import groupby
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, RowMapping, text

from services.contract.jobs import JobSettings, JudgeSettings, RereadOptions, RereadRequest
from services.foundation.database import transaction
from services.foundation.errors import Conflict, Fault, Invalid, Misconfigured, NotFound
from services.foundation.fleet import Fleet
from services.foundation.identifiers import new_id
from services.foundation.jsontext import escaped
from services.jobs.body import members_of
from services.jobs.docket import comparison, hearing_options, replayed
from services.jobs.partitions import ensure_partition
from services.jobs.queries import load_job
from services.jobs.record import TRACE_COLUMNS, Batch
from services.jobs.request import contradictions, family_of, faults_of, metadata_of, resolve_panel
from services.jobs.rows import opinion_row, reading_json, verdict_row
from services.jobs.settle import settle_next
from services.jobs.stages import lay_out, plan
from services.jobs.states import ENDED
from services.jobs.submit import MOST_ITEMS_OF_CHUNK, Submitted
from services.judging.hearing import CallKey, Hearing
from services.judging.opinion import Opinion
from services.judging.panel import PanelRule, join, single
from services.judging.protocol import JudgeProtocol
from services.vocabulary import JobKind, JobStatus, Priority, Stage

SOURCE = text("SELECT * FROM job WHERE id = :job_id AND tenant_id = :tenant_id FOR SHARE")

ADD_JOB = text(
    """
    INSERT INTO job (id, tenant_id, day, kind, status, priority, judges, settings, name, metadata_json, callback,
                     total, created_at, deadline, reread_of)
    SELECT :id, tenant_id, (now() AT TIME ZONE 'utc')::date, kind, 'queued', :priority, judges, :settings, :name,
           :metadata, :callback, total, now(), now() + interval '7 days', id
    FROM job WHERE id = :source
    RETURNING day
    """
)

COPY_ITEMS = text(
    """
    INSERT INTO item (job_id, seq, custom_id, custom_id_hash, input, facets)
    SELECT :id, seq, custom_id, custom_id_hash, input, facets FROM item WHERE job_id = :source
    """
)

JOB = text(
    """
    SELECT job.day, job.settings, source.id AS source, source.day AS source_day
    FROM job JOIN job AS source ON source.id = job.reread_of WHERE job.id = :job_id
    """
)

ITEMS = text(
    """
    SELECT seq, custom_id, input FROM item
    WHERE job_id = :job_id AND seq >= :first_seq AND seq < :end_seq ORDER BY seq
    """
)

# Only what the first job had an opinion on: an item that it never finished hearing is not finished here either.
HEARD = text(
    """
    SELECT trace.* FROM trace
    WHERE trace.day = :day AND trace.job_id = :job_id AND trace.seq >= :first_seq AND trace.seq < :end_seq
      AND EXISTS (
          SELECT 1 FROM opinion
          WHERE opinion.job_id = trace.job_id AND opinion.seq = trace.seq AND opinion.judge = trace.judge
      )
    ORDER BY trace.seq, trace.judge, trace.call
    """
)


def read_reread(body: bytes) -> tuple[RereadRequest, str]:
    """A request to read a job again, and its metadata's text. Nothing at all is a request too.

    Raises Malformed, Invalid.
    """
    members, items = members_of(body or b"{}")
    if items is not None:
        fault = Fault("unknown_field", "/items", "the items are those of the job that is read again")
        raise Invalid("the job cannot be read again", [fault])
    try:
        request = RereadRequest.model_validate({key: member.value for key, member in members.items()})
    except ValidationError as error:
        raise Invalid("the job cannot be read again", faults_of(error), error.error_count()) from None
    metadata, faults = metadata_of(members)
    if faults:
        raise Invalid("the job cannot be read again", faults)
    return request, metadata


def submit_reread(
    engine: Engine, tenant_id: UUID, source_id: UUID, request: RereadRequest, metadata: str, fleet: Fleet
) -> Submitted:
    """Queue a job that reads another one's traces again.

    Raises NotFound, also for another tenant's job; Conflict while that one has not ended; Invalid.
    """
    with transaction(engine) as connection:
        source = connection.execute(SOURCE, {"job_id": source_id, "tenant_id": tenant_id}).mappings().first()
        if source is None:
            raise NotFound("there is no such job")
        if JobStatus(source["status"]) not in ENDED:
            raise Conflict("a job can be read again once it has ended")
        settings = _settings(JobSettings.model_validate_json(source["settings"]), request.options, fleet)
        job_id = new_id()
        callback = request.callback
        added = {
            "id": job_id,
            "source": source_id,
            "priority": Priority.STANDARD,
            "settings": settings.model_dump_json(),
            "name": request.name,
            "metadata": metadata,
            "callback": escaped(callback.model_dump(mode="json")) if callback else None,
        }
        day = connection.scalar(ADD_JOB, added)
        connection.execute(COPY_ITEMS, {"id": job_id, "source": source_id})
        steps = plan(JobKind(source["kind"]), source["judges"], reread=True)
        chunks = lay_out(connection, job_id, steps, source["total"], MOST_ITEMS_OF_CHUNK, Priority.STANDARD)
        ensure_partition(connection, day)
        return Submitted(job_id, (), chunks, load_job(connection, tenant_id, job_id))


def reread_next(engine: Engine, fleet: Fleet, public_url: str) -> bool:
    """Read the next chunk again. False: there is none."""
    return settle_next(engine, Stage.REREAD, lambda connection, chunk: _read(connection, chunk, fleet), public_url)


def _settings(first: JobSettings, options: RereadOptions | None, fleet: Fleet) -> JobSettings:
    given = options or RereadOptions()
    changed = given.model_dump(exclude_none=True, exclude={"panel"})
    faults: list[Fault] = []
    judges: dict[str, JudgeSettings] = {}
    for judge, settings in first.judges.items():
        judges[judge] = settings.model_copy(update=changed)
        try:
            faults += contradictions(judge, judges[judge], family_of(fleet, judge))
        except Misconfigured as error:
            faults.append(Fault("unknown_model", "", f"{judge}: {error.message}"))
    if given.panel is not None and first.panel is None:
        faults.append(Fault("invalid_value", "/options/panel", "a panel has several judges"))
    if faults:
        raise Invalid("the job cannot be read again", faults)
    return JobSettings(judges=judges, panel=resolve_panel(given.panel, list(judges)) if given.panel else first.panel)


def _read(connection: Connection, chunk: RowMapping, fleet: Fleet) -> Batch:
    job = connection.execute(JOB, {"job_id": chunk["job_id"]}).mappings().one()
    settings = json.loads(job["settings"])
    families = {judge: family_of(fleet, judge) for judge in settings["judges"]}
    places = {"first_seq": chunk["first_seq"], "end_seq": chunk["end_seq"]}
    items = {row["seq"]: row for row in connection.execute(ITEMS, {**places, "job_id": chunk["job_id"]}).mappings()}
    heard = connection.execute(HEARD, {**places, "job_id": job["source"], "day": job["source_day"]}).mappings()
    batch = Batch()
    for seq, rows in groupby(heard, key=lambda row: row["seq"]):
        opinions = {}
        for judge, traces in groupby(rows, key=lambda row: row["judge"]):
            hearing = _hearing(judge, items[seq], families[judge], settings["judges"][judge])
            kept = [_reread(hearing, families[judge], trace, chunk["job_id"], job["day"]) for trace in traces]
            hearing.abandon()
            opinions[judge] = hearing.opinion()
            batch.traces += kept
            batch.opinions.append(opinion_row(chunk["job_id"], seq, opinions[judge]))
        batch.verdicts.append(verdict_row(chunk["job_id"], seq, _verdict(opinions, settings), spent=False))
    return batch


def _hearing(judge: str, item: RowMapping, family: JudgeProtocol, settings: Mapping[str, Any]) -> Hearing:
    """A hearing that takes in whatever was heard: all its samples are open from the start."""
    options = hearing_options({**settings, "early_stop": "never"})
    compared = comparison(json.loads(item["input"], parse_int=str))
    return Hearing(judge, json.loads(item["custom_id"]), compared, family, options)


def _reread(hearing: Hearing, family: JudgeProtocol, trace: RowMapping, job_id: UUID, day: object) -> tuple[Any, ...]:
    """Take one stored call in, where today's reading has a place for it; its trace as the new job keeps it."""
    key = CallKey.from_number(trace["call"])
    heard = replayed(hearing, key, trace)
    if key in hearing.open_calls():
        hearing.record(key, heard)
    new = {
        **trace,
        "day": day,
        "job_id": job_id,
        "outcome": heard.outcome,
        "reading": reading_json(heard, family),
    }
    return tuple(json.dumps(new[name]) if isinstance(new[name], dict) else new[name] for name in TRACE_COLUMNS)


def _verdict(opinions: Mapping[str, Opinion], settings: Mapping[str, Any]) -> Any:
    if settings["panel"] is None:
        (opinion,) = opinions.values()
        return single(opinion)
    missing = [judge for judge in settings["judges"] if judge not in opinions]
    return join(list(opinions.values()), PanelRule(**settings["panel"]), missing)
