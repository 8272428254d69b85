"""The census: what is queued, running, open and served now, for whoever watches over the service.

Guarantee: its cost does not depend on how many items, chunks or jobs there are: each part reads an index, and counts to
`MOST` at the most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from services.vocabulary import JobStatus, WorkerState

MOST = 10_000
GONE = (WorkerState.STOPPED, WorkerState.DEFUNCT)
PRESENT = [state for state in WorkerState if state not in GONE]

# In the order of the index, so that it is read and not the table. Jobs are numbered by their time: the first one of a
# priority is its oldest.
QUEUED = text(
    """
    SELECT served.model, counted.chunks, coalesce(extract(epoch FROM now() - oldest.since), 0) AS oldest_seconds
    FROM unnest(cast(:models AS text[])) AS served(model)
    CROSS JOIN LATERAL (
        SELECT count(*) AS chunks
        FROM (
            SELECT FROM chunk WHERE chunk.state = 'queued' AND chunk.model = served.model
            ORDER BY chunk.priority, chunk.job_id, chunk.ordinal, chunk.part LIMIT :most
        ) AS few
    ) AS counted
    CROSS JOIN LATERAL (
        SELECT min(first.since) AS since
        FROM (VALUES (0), (1), (2)) AS class(priority)
        CROSS JOIN LATERAL (
            SELECT (SELECT created_at FROM job WHERE job.id = chunk.job_id) AS since FROM chunk
            WHERE chunk.state = 'queued' AND chunk.model = served.model AND chunk.priority = class.priority
            ORDER BY chunk.job_id LIMIT 1
        ) AS first
    ) AS oldest
    """
)

# No more run than the workers have slots. What its worker holds no lease for is about to be rescued.
RUNNING = text(
    """
    SELECT chunk.model, count(*) AS chunks, count(*) FILTER (WHERE worker.id IS NULL) AS orphans
    FROM chunk LEFT JOIN worker ON worker.id = chunk.claimed_by AND worker.lease_until > now()
    WHERE chunk.state = 'running' AND chunk.model = ANY(:models)
    GROUP BY chunk.model
    """
)

OPEN = text(
    """
    SELECT few.status, count(*) AS jobs
    FROM (
        SELECT status FROM job WHERE status IN ('queued', 'running', 'cancelling') ORDER BY deadline LIMIT :most
    ) AS few
    GROUP BY few.status
    """
)

WORKERS = text(
    """
    SELECT worker.model, worker.state, count(*) AS workers
    FROM unnest(cast(:models AS text[])) AS served(model)
    JOIN worker ON worker.model = served.model AND worker.lease_until > now()
    WHERE worker.state NOT IN ('stopped', 'defunct')
    GROUP BY worker.model, worker.state
    """
)

# A worker that leaves in order says so; one whose lease lapsed in any other state was killed, froze or was cut off.
SILENT = text(
    """
    SELECT worker.model, count(*) AS workers
    FROM unnest(cast(:models AS text[])) AS served(model)
    JOIN worker ON worker.model = served.model
     AND worker.lease_until <= now() AND worker.lease_until > now() - interval '10 minutes'
    WHERE worker.state NOT IN ('stopped', 'defunct')
    GROUP BY worker.model
    """
)

DEFUNCT = text(
    """
    SELECT served.model
    FROM unnest(cast(:models AS text[])) AS served(model)
    CROSS JOIN LATERAL (
        SELECT state FROM worker WHERE worker.model = served.model ORDER BY worker.lease_until DESC LIMIT 1
    ) AS last
    WHERE last.state = 'defunct'
    """
)


@dataclass(frozen=True, slots=True)
class ModelCount:
    """What there is of one model. `oldest_seconds`: the age of the oldest job with a queued chunk, 0 without one.

    `orphans` run under a lease that has lapsed. `silent` workers lost theirs within ten minutes without a word. The
    model is `defunct` when its last worker gave its runtime up, and none has come since.
    """

    queued: int
    oldest_seconds: float
    running: int
    orphans: int
    workers: Mapping[WorkerState, int]
    silent: int
    defunct: bool


@dataclass(frozen=True, slots=True)
class Census:
    """What there is now: by model, and open jobs by status."""

    models: Mapping[str, ModelCount]
    jobs: Mapping[JobStatus, int]


def defunct_models(connection: Connection, models: Sequence[str]) -> set[str]:
    """Those of these models whose last worker gave its runtime up, with none that has come since."""
    return set(connection.execute(DEFUNCT, {"models": list(models)}).scalars())


def take_census(connection: Connection, models: Sequence[str]) -> Census:
    """Count what there is of these models."""
    bound = {"models": list(models)}
    queued = {row.model: row for row in connection.execute(QUEUED, {**bound, "most": MOST})}
    running = {row.model: row for row in connection.execute(RUNNING, bound)}
    workers = {(row.model, WorkerState(row.state)): row.workers for row in connection.execute(WORKERS, bound)}
    silent = {row.model: row.workers for row in connection.execute(SILENT, bound)}
    defunct = defunct_models(connection, models)
    return Census(
        models={
            model: ModelCount(
                queued=queued[model].chunks,
                oldest_seconds=float(queued[model].oldest_seconds),
                running=running[model].chunks if model in running else 0,
                orphans=running[model].orphans if model in running else 0,
                workers={state: workers.get((model, state), 0) for state in PRESENT},
                silent=silent.get(model, 0),
                defunct=model in defunct,
            )
            for model in models
        },
        jobs={JobStatus(row.status): row.jobs for row in connection.execute(OPEN, {"most": MOST})},
    )
