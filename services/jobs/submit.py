"""Submitting: a job, its items and its chunks, in one transaction.

Guarantee: all or nothing. What is refused leaves no trace, and every fault is listed, the first hundred by name. Memory
does not grow with the number of items: they go through COPY as they are read, and are read a second time only to list
faults.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from services.contract.jobs import DEFAULT_DEADLINE, LONGEST_DEADLINE, MOST_UPLOADED_ITEMS
from services.foundation.database import copy_rows, transaction
from services.foundation.errors import Fault, Invalid, NoItems
from services.foundation.identifiers import new_id
from services.jobs.committees import keep_anchors
from services.jobs.intake import Item, Items
from services.jobs.partitions import ensure_partition
from services.jobs.queries import JobView, load_job
from services.jobs.request import MOST_FAULTS, Submission
from services.jobs.stages import Calls, lay_out, plan
from services.vocabulary import JobStatus

MOST_ITEMS_OF_CHUNK = 32
MOST_CALLS_OF_CHUNK = 128

ITEM_COLUMNS = ("job_id", "seq", "custom_id", "custom_id_hash", "input", "facets")

CLOCK = text("SELECT now(), (now() AT TIME ZONE 'utc')::date")

ADD_JOB = text(
    """
    INSERT INTO job (id, tenant_id, day, kind, status, priority, judges, settings, name, metadata_json, callback,
                     total, created_at, deadline)
    VALUES (:id, :tenant_id, :day, :kind, :status, :priority, :judges, :settings, :name, :metadata, :callback,
            :total, :created_at, :deadline)
    """
)

SEEN = text("CREATE TEMPORARY TABLE seen (hash uuid NOT NULL, place integer NOT NULL) ON COMMIT DROP")
REPEATED = text(
    """
    SELECT place, count(*) OVER () AS total
    FROM (SELECT place, row_number() OVER (PARTITION BY hash ORDER BY place) AS occurrence FROM seen) AS numbered
    WHERE occurrence > 1 ORDER BY place LIMIT :most
    """
)


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job that is in the queue: for each of its `models` as many bells as it has `chunks` are worth ringing.

    `view` is the job as it was committed: an answer that needs nothing more of the database.
    """

    job_id: UUID
    models: tuple[str, ...]
    chunks: int
    view: JobView


class _FaultyItems(Exception):
    """At least one item is faulty."""


def submit(engine: Engine, tenant_id: UUID, submission: Submission, items: Items) -> Submitted:
    """Queue a job. Raises Invalid with every fault, NoItems."""
    try:
        with transaction(engine) as connection:
            return _insert(connection, tenant_id, submission, items)
    except (_FaultyItems, IntegrityError):
        with transaction(engine) as connection:
            raise _diagnosis(connection, items) from None


def chunk_size(calls: Calls) -> int:
    """Items of a chunk: at most 32, and at most 128 calls of a model unless one item alone exceeds that."""
    most = max(of_an_item for models in calls.values() for of_an_item in models.values())
    return max(1, min(MOST_ITEMS_OF_CHUNK, MOST_CALLS_OF_CHUNK // most))


def _insert(connection: Connection, tenant_id: UUID, submission: Submission, items: Items) -> Submitted:
    job_id = new_id()
    now, day = connection.execute(CLOCK).one()
    deadline = _deadline(submission.deadline, now)
    terms = submission.terms
    counted = _Counted(items)
    total = copy_rows(connection, "item", ITEM_COLUMNS, _rows(job_id, counted))
    if total == 0:
        raise NoItems
    job = {
        "id": job_id,
        "tenant_id": tenant_id,
        "day": day,
        "kind": submission.kind,
        "status": JobStatus.QUEUED,
        "priority": submission.priority,
        "judges": list(terms.judges),
        "settings": terms.settings.model_dump_json(),
        "name": submission.name,
        "metadata": submission.metadata,
        "callback": submission.callback,
        "total": total,
        "created_at": now,
        "deadline": deadline,
    }
    connection.execute(ADD_JOB, job)
    if terms.anchors is not None:
        keep_anchors(connection, terms.anchors)
    steps = plan(terms.settings)
    calls = terms.calls_per_item(counted.most_texts)
    chunks = lay_out(connection, job_id, steps, calls, total, chunk_size(calls), submission.priority)
    # Last, since making a partition locks the table of all traces until the commit.
    ensure_partition(connection, day)
    return Submitted(job_id, steps[0].models, chunks, load_job(connection, tenant_id, job_id))


def _deadline(asked: datetime | None, now: datetime) -> datetime:
    if asked is None:
        return now + DEFAULT_DEADLINE
    if asked <= now:
        raise Invalid("the job cannot be accepted", [Fault("invalid_value", "/deadline", "the deadline has passed")])
    if asked > now + LONGEST_DEADLINE:
        message = f"the deadline is more than {LONGEST_DEADLINE.days} days away"
        raise Invalid("the job cannot be accepted", [Fault("invalid_value", "/deadline", message)])
    return asked


class _Counted:
    """Items that pass by, and the most texts that are compared in one of them."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self.most_texts = 1

    def __iter__(self) -> Iterator[Item | Fault]:
        for item in self._items:
            if isinstance(item, Item):
                self.most_texts = max(self.most_texts, item.texts)
            yield item


def _rows(job_id: UUID, items: Iterable[Item | Fault]) -> Iterator[tuple[object, ...]]:
    for seq, item in enumerate(items):
        if isinstance(item, Fault):
            raise _FaultyItems
        if seq == MOST_UPLOADED_ITEMS:
            message = f"a job has at most {MOST_UPLOADED_ITEMS} items"
            raise Invalid("the job has too many items", [Fault("too_many_items", "", message, item.place)])
        yield (job_id, seq, item.custom_id, item.custom_id_hash, item.input, item.facets)


class _SecondReading:
    """Goes through items once more, keeps the first faults and counts the rest."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self.items = 0
        self.faults = 0
        self.listed: list[tuple[int, Fault]] = []

    def sound(self) -> Iterator[tuple[str, int]]:
        """The hashes and places of the items without a fault of their own."""
        for index, item in enumerate(self._items):
            self.items += 1
            if isinstance(item, Item):
                yield item.custom_id_hash, item.place
                continue
            self.faults += 1
            if len(self.listed) < MOST_FAULTS:
                self.listed.append((index if item.line is None else item.line, item))


def _diagnosis(connection: Connection, items: Items) -> Invalid:
    """Every fault of the items. Equal custom ids are found by the database, not in memory."""
    reading = _SecondReading(items)
    connection.execute(SEEN)
    copy_rows(connection, "pg_temp.seen", ("hash", "place"), reading.sound())
    repeated = connection.execute(REPEATED, {"most": MOST_FAULTS}).all()
    total = reading.faults + (repeated[0].total if repeated else 0)
    duplicates = [(row.place, items.duplicate(row.place)) for row in repeated]
    listed = sorted([*reading.listed, *duplicates], key=lambda placed: placed[0])[:MOST_FAULTS]
    return Invalid(f"{total} of {reading.items} items cannot be accepted", [fault for _, fault in listed], total)
