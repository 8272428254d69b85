"""The census counts what is there, and costs no more however much that is."""

import json
from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Engine, TextClause, text

from services.foundation.database import transaction
from services.foundation.identifiers import new_id
from services.jobs import census
from services.jobs.census import MOST, take_census
from services.jobs.claim import claim
from services.jobs.lease import enrol, renew, retire
from services.vocabulary import WorkerState
from tests.factories import MODEL, make_tenant, queue_job

MODELS = [MODEL, "other"]
STATEMENTS = [census.QUEUED, census.RUNNING, census.OPEN, census.WORKERS, census.SILENT, census.DEFUNCT]
MORE = text(  # as many queued chunks as a very large job has
    """
    INSERT INTO chunk (job_id, stage, ordinal, part, model, first_seq, end_seq, priority, step, state, settles,
                       calls_per_item)
    SELECT job_id, stage, number, part, model, number * 32, number * 32 + 32, priority, step, state, settles,
           calls_per_item
    FROM chunk, generate_series(cast(:start AS integer), :end) AS number
    WHERE chunk.ordinal = 0 AND chunk.job_id = :job_id
    """
)


def enrolled(engine: Engine, model: str, state: WorkerState, lease: float = 60) -> UUID:
    """A worker in this state, whose lease lasts so many seconds from now."""
    worker_id = new_id()
    enrol(engine, worker_id, model, "host", 1, 18, lease)
    renew(engine, worker_id, lease, state, 0, 0.0)
    return worker_id


def test_what_is_there_is_counted(engine: Engine) -> None:
    tenant = make_tenant(engine)
    old = queue_job(engine, tenant, 40)
    queue_job(engine, tenant, 3, priority="interactive")
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET created_at = now() - interval '1 hour' WHERE id = :id"), {"id": old})
    ready = enrolled(engine, MODEL, WorkerState.READY)
    enrolled(engine, MODEL, WorkerState.UNHEALTHY)
    enrolled(engine, "other", WorkerState.READY, lease=-5)  # it went silent five seconds ago
    enrolled(engine, "other", WorkerState.READY, lease=-3600)  # long ago
    retire(engine, enrolled(engine, "other", WorkerState.READY))
    assert claim(engine, ready, MODEL) is not None
    with transaction(engine) as connection:
        counted = take_census(connection, MODELS)
    here, there = counted.models[MODEL], counted.models["other"]
    assert (here.queued, here.running, here.orphans, here.silent) == (2, 1, 0, 0)
    assert 3600 <= here.oldest_seconds < 3700
    assert here.workers[WorkerState.READY] == here.workers[WorkerState.UNHEALTHY] == 1
    assert (there.queued, there.running, there.oldest_seconds, there.silent) == (0, 0, 0, 1)
    assert sum(there.workers.values()) == 0
    assert (here.defunct, there.defunct) == (False, False)
    assert counted.jobs == {"queued": 1, "running": 1}


def test_what_a_silent_worker_holds_is_an_orphan(engine: Engine) -> None:
    queue_job(engine, make_tenant(engine), 3)
    assert claim(engine, enrolled(engine, MODEL, WorkerState.READY, lease=-5), MODEL) is not None
    with transaction(engine) as connection:
        counted = take_census(connection, MODELS).models[MODEL]
    assert (counted.running, counted.orphans, counted.silent) == (1, 1, 1)


def test_a_model_is_defunct_from_its_last_workers_end_to_the_next_ones_start(engine: Engine) -> None:
    retire(engine, enrolled(engine, MODEL, WorkerState.UNHEALTHY), defunct=True)
    with transaction(engine) as connection:
        counted = take_census(connection, MODELS).models[MODEL]
    assert (counted.defunct, counted.silent, sum(counted.workers.values())) == (True, 0, 0)
    enrolled(engine, MODEL, WorkerState.STARTING)
    with transaction(engine) as connection:
        counted = take_census(connection, MODELS).models[MODEL]
    assert (counted.defunct, sum(counted.workers.values())) == (False, 1)


def test_more_chunks_cost_no_more(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 3)
    read = []
    for start, end in ((1, 2 * MOST), (2 * MOST + 1, 5 * MOST)):
        with transaction(engine) as connection:
            connection.execute(MORE, {"start": start, "end": end, "job_id": job_id})
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE chunk"))
        read.append(pages_read(engine, STATEMENTS))
    assert read[1] < read[0] * 1.1
    with transaction(engine) as connection:
        assert take_census(connection, MODELS).models[MODEL].queued == MOST


def pages_read(engine: Engine, statements: Sequence[TextClause]) -> int:
    """How many pages of the database these statements look at."""
    read = 0
    for statement in statements:
        bound = {name: value for name, value in (("models", MODELS), ("most", MOST)) if f":{name}" in statement.text}
        with transaction(engine) as connection:
            plan = connection.execute(text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.text}"), bound).scalar()
        top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
        read += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
    return read
