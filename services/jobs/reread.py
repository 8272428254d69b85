"""Reading stored traces again: a new job that asks no runtime anything.

Guarantee: the raw completions are what the first job heard, read by today's protocol and the options that were asked
for. What today's reading would ask otherwise, or on top, is not asked, and nothing stands in for it: a follow-up counts
only behind the very text that it was asked behind.

The new job takes over the items when it is queued, and an item's traces when that is settled. From its end on it needs
nothing of the first. What has not been settled by the time that the first job is deleted has expired.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping, text

from services.contract.jobs import DEFAULT_DEADLINE, RereadRequest
from services.contract.options import JobSettings, JudgeSettings, PanelOptions, PanelSettings, RereadOptions
from services.foundation.database import transaction
from services.foundation.errors import Conflict, Fault, Invalid, Misconfigured, TracesPruned
from services.foundation.fleet import CPU, Fleet
from services.foundation.identifiers import new_id
from services.foundation.jsontext import escaped
from services.jobs.docket import replayed
from services.jobs.hear import comparison, hearing_options
from services.jobs.options import contradictions, family_of, idle_options
from services.jobs.partitions import ensure_partition, hold_traces
from services.jobs.queries import load_job, lock_ended
from services.jobs.record import TRACE_COLUMNS, Batch, write_batch
from services.jobs.request import metadata_of, read_of_job
from services.jobs.rows import opinion_row, reading_json, verdict_row
from services.jobs.settle import settle_next
from services.jobs.strictjson import pointer_to
from services.jobs.submit import Submitted
from services.judging.heard import Heard
from services.judging.hearing import Hearing
from services.judging.opinion import Opinion
from services.judging.panel import PanelRule, Verdict, join, single
from services.judging.proceeding import CallKey
from services.judging.protocol import Family
from services.vocabulary import JobKind, Priority, Stage

FETCH = 64  # traces at once

# What a stopped hearing's samples were chosen for.
QUESTION = ("decide", "forced_verdict", "margin", "on_conflict", "reading", "tie_margin")
STOPPED_EARLY = "hearing stopped early, by what decided then: for this, other samples would have been asked"

ADD_JOB = text(
    """
    INSERT INTO job (id, tenant_id, day, kind, status, priority, judges, settings, name, metadata_json, callback,
                     total, created_at, deadline, reread_of)
    SELECT :id, tenant_id, (now() AT TIME ZONE 'utc')::date, kind, 'queued', :priority, judges, :settings, :name,
           :metadata, :callback, total, now(), now() + :open_for, id
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

# An ordinal bears no more calls than it did when it was heard.
COPY_CHUNKS = text(
    """
    INSERT INTO chunk (job_id, stage, ordinal, part, model, first_seq, end_seq, priority, step, calls_per_item, state,
                       settles)
    SELECT :id, :stage, ordinal, part, :cpu, first_seq, end_seq, :priority, 0, 0, 'queued', true
    FROM chunk WHERE job_id = :source AND settles
    """
)

ANY_STOPPED = text(
    "SELECT EXISTS (SELECT 1 FROM opinion WHERE job_id = :source AND jsonb_typeof(body -> 'stopped') = 'string')"
)

DAYS = text(
    """
    SELECT job.day, source.id AS source, source.day AS source_day
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
JUDGED = """
    trace.day = :source_day AND trace.job_id = :source AND trace.seq >= :first_seq AND trace.seq < :end_seq
    AND opinion.job_id = trace.job_id AND opinion.seq = trace.seq AND opinion.judge = trace.judge
"""

HEARD = text(
    f"""
    SELECT trace.seq, trace.judge, trace.call, trace.outcome, trace.reading -> 'span' AS span, trace.completion,
           trace.finish_reason, trace.prompt_tokens, trace.cached_tokens, trace.completion_tokens, trace.label_logprobs,
           trace.sent_at, trace.latency_ms, CASE WHEN trace.forced THEN trace.prompt END AS prompt, trace.prompt_sha256,
           opinion.body ->> 'stopped' AS stopped
    FROM trace, opinion WHERE {JUDGED}
    ORDER BY trace.seq, trace.judge, trace.call
    """
)

# A call that was not read again keeps the reading that it had.
_READ = {"day": ":day", "job_id": ":job_id"} | {
    name: f"coalesce(read.{name}, trace.{name})" for name in ("outcome", "reading")
}
COPY_TRACES = text(
    f"""
    INSERT INTO trace ({", ".join(TRACE_COLUMNS)})
    SELECT {", ".join(_READ.get(name, f"trace.{name}") for name in TRACE_COLUMNS)}
    FROM opinion, trace LEFT JOIN json_to_recordset(cast(:readings AS json))
         AS read (seq integer, judge text, call smallint, outcome text, reading jsonb) USING (seq, judge, call)
    WHERE {JUDGED}
    """
)


@dataclass(slots=True)
class Rereading(Batch):
    """What a chunk came to, and how its calls read now.

    The rest of their traces is copied within the database, from the `places` of the first job; None: that job is gone.
    """

    places: Mapping[str, Any] | None = None
    readings: list[Mapping[str, Any]] = field(default_factory=list)


def read_reread(body: bytes) -> tuple[RereadRequest, str]:
    """A request to read a job again, and its metadata's text. Nothing at all is a request too.

    Raises Malformed, Invalid.
    """
    request, members = read_of_job(body, RereadRequest, "the job cannot be read again")
    metadata, faults = metadata_of(members)
    if faults:
        raise Invalid("the job cannot be read again", faults)
    return request, metadata


def submit_reread(
    engine: Engine, tenant_id: UUID, source_id: UUID, request: RereadRequest, metadata: str, fleet: Fleet
) -> Submitted:
    """Queue a job that reads another one's traces again.

    Raises NotFound, also for another tenant's job; Conflict while that one has not ended, and for one that is no
    judgement; TracesPruned; Invalid.
    """
    with transaction(engine) as connection:
        source = lock_ended(connection, tenant_id, source_id)
        if JobKind(source["kind"]) is not JobKind.JUDGEMENT:
            raise Conflict("only a judgement can be read again")
        if not hold_traces(connection, source["day"]):
            raise TracesPruned("the traces of this job are not kept any more")
        first = JobSettings.model_validate_json(source["settings"])
        settings = _settings(first, request.options or RereadOptions(), fleet)
        other = [*_other_questions(first, settings)]
        if other and connection.scalar(ANY_STOPPED, {"source": source_id}):
            raise Invalid("the job cannot be read again", other)
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
            "open_for": DEFAULT_DEADLINE,
        }
        day = connection.scalar(ADD_JOB, added)
        connection.execute(COPY_ITEMS, {"id": job_id, "source": source_id})
        laid_out = {"stage": Stage.REREAD, "cpu": CPU, "priority": Priority.STANDARD}
        chunks = connection.execute(COPY_CHUNKS, {"id": job_id, "source": source_id, **laid_out}).rowcount
        ensure_partition(connection, day)
        return Submitted(job_id, (), chunks, load_job(connection, tenant_id, job_id))


def reread_next(engine: Engine, fleet: Fleet, public_url: str) -> bool:
    """Read the next chunk again. False: there is none."""

    def read(connection: Connection, chunk: Mapping[str, Any]) -> Rereading:
        return _read(connection, chunk, fleet)

    return settle_next(engine, Stage.REREAD, read, public_url, _write)


def _settings(first: JobSettings, given: RereadOptions, fleet: Fleet) -> JobSettings:
    """The first job's options, with those that are given in their places. Raises Invalid, as for a new job."""
    changed = given.model_dump(exclude_none=True, exclude={"panel"})
    faults: list[Fault] = []
    judges: dict[str, JudgeSettings] = {}
    families: dict[str, Family] = {}
    for judge, settings in first.judges.items():
        judges[judge] = settings.model_copy(update=changed)
        try:
            families[judge] = family_of(fleet, judge)
        except Misconfigured as error:
            faults.append(Fault("unknown_model", "", f"{judge}: {error.message}"))
        else:
            faults += contradictions(judge, judges[judge], families[judge])
    if len(families) == len(judges):
        faults += idle_options(given, judges, families)
    if faults:
        raise Invalid("the job cannot be read again", faults)
    return JobSettings(judges=judges, panel=_panel(first.panel, given.panel or PanelOptions()))


def _panel(first: PanelSettings | None, given: PanelOptions) -> PanelSettings | None:
    if first is None:
        return None
    weights = first.weights | (given.weights or {})
    return first.model_copy(update=given.model_dump(exclude_none=True) | {"weights": weights})


def _other_questions(first: JobSettings, settings: JobSettings) -> Iterator[Fault]:
    """What is asked now that the samples of a hearing that stopped early were not chosen for."""
    for option in QUESTION:
        if any(
            getattr(judge, option) != getattr(first.judges[name], option) for name, judge in settings.judges.items()
        ):
            yield Fault("invalid_value", pointer_to("options", option), STOPPED_EARLY)
    if settings.panel and first.panel and settings.panel.decide == "mean" != first.panel.decide:
        yield Fault("invalid_value", pointer_to("options", "panel", "decide"), STOPPED_EARLY)


def _read(connection: Connection, chunk: Mapping[str, Any], fleet: Fleet) -> Rereading:
    days = connection.execute(DAYS, {"job_id": chunk["job_id"]}).mappings().first()
    if days is None:
        return Rereading()
    settings = json.loads(chunk["settings"])
    families = {judge: family_of(fleet, judge) for judge in settings["judges"]}
    run = {"first_seq": chunk["first_seq"], "end_seq": chunk["end_seq"]}
    items = {row["seq"]: row for row in connection.execute(ITEMS, {**run, "job_id": chunk["job_id"]}).mappings()}
    read = Rereading(places={**run, **days})
    heard = connection.execute(HEARD, read.places, execution_options={"yield_per": FETCH}).mappings()
    for seq, rows in groupby(heard, key=lambda row: row["seq"]):
        opinions = {}
        for judge, traces in groupby(rows, key=lambda row: row["judge"]):
            how = settings["judges"][judge]
            opinions[judge] = _hear(_hearing(judge, items[seq], families[judge], how), families[judge], traces, read)
            read.opinions.append(opinion_row(chunk["job_id"], seq, opinions[judge]))
        read.verdicts.append(verdict_row(chunk["job_id"], seq, _verdict(opinions, settings), spent=False))
    return read


def _write(connection: Connection, key: Mapping[str, Any], read: Rereading) -> None:
    write_batch(connection, key, read)
    if read.places is not None:
        bound = {**read.places, "job_id": key["job_id"], "readings": json.dumps(read.readings)}
        connection.execute(COPY_TRACES, bound)


def _hearing(judge: str, item: RowMapping, family: Family, settings: Mapping[str, Any]) -> Hearing:
    """A hearing that takes in whatever was heard: all its samples are open from the start."""
    options = hearing_options({**settings, "early_stop": "never"})
    compared = comparison(json.loads(item["input"], parse_int=str))
    return Hearing(judge, json.loads(item["custom_id"]), compared, family, options)


def _hear(hearing: Hearing, family: Family, traces: Iterable[RowMapping], read: Rereading) -> Opinion:
    """Take the stored calls in for which today's reading has a place, and note how they read."""
    taken: dict[CallKey, tuple[RowMapping, Heard]] = {}
    stopped = None
    for trace in traces:
        stopped = trace["stopped"]
        key = CallKey.from_number(trace["call"])
        followed = taken.get(key.first) if key.forced else None
        if not hearing.is_open(key):
            continue
        if followed is not None and not _continues(trace, *followed, hearing.written_before(key)):
            continue
        heard = replayed(hearing, key, trace)
        hearing.record(key, heard)
        taken[key] = trace, heard
        new = {"outcome": heard.outcome, "reading": reading_json(heard, family)}
        read.readings.append({name: trace[name] for name in ("seq", "judge", "call")} | new)
    hearing.abandon()
    return replace(hearing.opinion(), stopped=stopped)


def _continues(follow_up: RowMapping, first: RowMapping, heard: Heard, written: str) -> bool:
    """Whether a stored follow-up was asked behind `written`, which today's reading of the `first` call would write.

    Where only hashes of prompts are kept, that is whether the first call reads as it did in the job that is read again.
    """
    if follow_up["prompt"] is None:
        span = heard.reading.span
        read_so: bool = first["outcome"] == heard.outcome and first["span"] == (span and list(span))
        return read_so
    prompt: str = json.loads(follow_up["prompt"])
    hashed: str = first["prompt_sha256"]
    before = prompt[: len(prompt) - len(written)].encode("utf-8", "surrogatepass")
    return prompt.endswith(written) and hashlib.sha256(before).hexdigest() == hashed


def _verdict(opinions: Mapping[str, Opinion], settings: Mapping[str, Any]) -> Verdict:
    if settings["panel"] is None:
        (opinion,) = opinions.values()
        return single(opinion)
    missing = [judge for judge in settings["judges"] if judge not in opinions]
    return join(list(opinions.values()), PanelRule(**settings["panel"]), missing)
