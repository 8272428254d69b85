"""Leases: what makes a worker's silence visible.

Guarantee: a lease is granted, renewed and judged on the database's clock; a worker that stops renewing loses its chunks
after one lease, and one that leaves in order gives its lease back at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.foundation.jsontext import escaped
from services.jobs.claim import ClaimKey
from services.vocabulary import WorkerState

ENROL = text(
    """
    INSERT INTO worker (id, model, hostname, pid, state, slots, tokens_per_second, lease_until)
    VALUES (:id, :model, :hostname, :pid, 'starting', :slots, 0, now() + make_interval(secs => :lease))
    """
)

RENEW = text(
    """
    UPDATE worker SET state = :state, heartbeat_at = now(), lease_until = now() + make_interval(secs => :lease),
        running_calls = :running_calls, tokens_per_second = :tokens_per_second
    WHERE id = :id
    """
)

RETIRE = text("UPDATE worker SET state = :state, heartbeat_at = now(), lease_until = now() WHERE id = :id")

OPEN_EPOCH = text(
    """
    INSERT INTO runtime_epoch (id, worker_id, model, weights, revision, weights_hash, template_hash, runtime_version,
                               launch_flags, server_info)
    VALUES (:id, :worker_id, :model, :weights, :revision, :weights_hash, :template_hash, :runtime_version,
            cast(:launch_flags AS jsonb), cast(:server_info AS jsonb))
    """
)
PIN_EPOCH = text("UPDATE worker SET epoch_id = :id WHERE id = :worker_id")
CLOSE_EPOCHS = text("UPDATE runtime_epoch SET ended_at = now() WHERE worker_id = :worker_id AND ended_at IS NULL")

HELD = text(
    """
    SELECT chunk.job_id, chunk.stage, chunk.ordinal, chunk.part, chunk.model, chunk.fence,
           job.status = 'running' AND job.deadline > now() AS wanted
    FROM chunk JOIN job ON job.id = chunk.job_id
    WHERE chunk.state = 'running' AND chunk.claimed_by = :id
    """
)
DISOWN = text(
    """
    UPDATE chunk SET claimed_by = NULL
    WHERE job_id = :job_id AND stage = :stage AND ordinal = :ordinal AND part = :part AND model = :model
      AND state = 'running' AND claimed_by = :id AND fence = :fence
    """
)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One start of a runtime, as it is recorded."""

    id: UUID
    worker_id: UUID
    model: str
    weights: str
    revision: str | None
    weights_hash: str | None
    template_hash: str | None
    runtime_version: str | None
    launch_flags: Sequence[str] | None
    server_info: dict[str, object]


def enrol(engine: Engine, worker_id: UUID, model: str, hostname: str, pid: int, slots: int, lease: float) -> None:
    """Put a starting worker on the list, with its first lease (seconds)."""
    with transaction(engine) as connection:
        connection.execute(
            ENROL,
            {"id": worker_id, "model": model, "hostname": hostname, "pid": pid, "slots": slots, "lease": lease},
        )


def renew(
    engine: Engine, worker_id: UUID, lease: float, state: WorkerState, running_calls: int, tokens_per_second: float
) -> None:
    """One heartbeat."""
    with transaction(engine) as connection:
        connection.execute(
            RENEW,
            {
                "id": worker_id,
                "lease": lease,
                "state": state,
                "running_calls": running_calls,
                "tokens_per_second": tokens_per_second,
            },
        )


def retire(engine: Engine, worker_id: UUID, *, defunct: bool = False) -> None:
    """The last word of a worker that leaves in order, or because its runtime is `defunct`."""
    state = WorkerState.DEFUNCT if defunct else WorkerState.STOPPED
    with transaction(engine) as connection:
        connection.execute(RETIRE, {"id": worker_id, "state": state})


def open_epoch(engine: Engine, epoch: Epoch) -> None:
    """Record a runtime's start, which ends the one before, and pin the worker to it."""
    with transaction(engine) as connection:
        connection.execute(CLOSE_EPOCHS, {"worker_id": epoch.worker_id})
        connection.execute(
            OPEN_EPOCH,
            {
                "id": epoch.id,
                "worker_id": epoch.worker_id,
                "model": epoch.model,
                "weights": epoch.weights,
                "revision": epoch.revision,
                "weights_hash": epoch.weights_hash,
                "template_hash": epoch.template_hash,
                "runtime_version": epoch.runtime_version,
                "launch_flags": None if epoch.launch_flags is None else escaped(list(epoch.launch_flags)),
                "server_info": escaped(epoch.server_info),
            },
        )
        connection.execute(PIN_EPOCH, {"id": epoch.id, "worker_id": epoch.worker_id})


def close_epochs(engine: Engine, worker_id: UUID) -> None:
    """Record the end of a worker's runtime."""
    with transaction(engine) as connection:
        connection.execute(CLOSE_EPOCHS, {"worker_id": worker_id})


def held_claims(engine: Engine, worker_id: UUID) -> dict[ClaimKey, bool]:
    """The claims that this worker holds, and whether each is still wanted: its job not cancelled nor overdue."""
    with transaction(engine) as connection:
        rows = connection.execute(HELD, {"id": worker_id}).all()
    return {ClaimKey(*row[:6]): row.wanted for row in rows}


def disown(engine: Engine, worker_id: UUID, claimed: ClaimKey) -> None:
    """Give up a claim whose answer was lost, so that nobody hears it: the rescue then hands the chunk on."""
    with transaction(engine) as connection:
        connection.execute(DISOWN, {**claimed._asdict(), "id": worker_id})
