"""The roster: which models are served now, by whom, and what waits for them.

Guarantee: every model of the fleet is listed, served or not; a worker counts while its lease lasts, on the database's
clock.
"""

from sqlalchemy import Connection, RowMapping, text

from services.contract.models import Health, ModelStatus
from services.foundation.fleet import Fleet, FleetModel
from services.jobs.request import default_mode
from services.vocabulary import WorkerState

WORKERS = text(
    """
    SELECT model, state, running_calls, tokens_per_second, epoch_id FROM worker
    WHERE lease_until > now() AND state <> 'stopped' ORDER BY started_at
    """
)
WAITING = text("SELECT model, sum(end_seq - first_seq) AS items FROM chunk WHERE state = 'queued' GROUP BY model")

BEST_FIRST: tuple[tuple[WorkerState, Health], ...] = (
    (WorkerState.READY, "ready"),
    (WorkerState.STARTING, "starting"),
    (WorkerState.DRAINING, "draining"),
    (WorkerState.UNHEALTHY, "unhealthy"),
)


def roster(connection: Connection, fleet: Fleet) -> list[ModelStatus]:
    """Every model of the fleet, by name."""
    workers = connection.execute(WORKERS).mappings().all()
    waiting = queue_depths(connection)
    return [
        _status(model, [row for row in workers if row["model"] == name], waiting.get(name, 0))
        for name, model in sorted(fleet.models.items())
    ]


def queue_depths(connection: Connection) -> dict[str, int]:
    """Items in queued chunks, by model; models without any are left out."""
    return {row.model: int(row.items) for row in connection.execute(WAITING)}


def _status(model: FleetModel, workers: list[RowMapping], waiting: int) -> ModelStatus:
    states = {row["state"] for row in workers}
    return ModelStatus(
        name=model.name,
        protocol=model.protocol,
        weights=model.weights,
        revision=model.revision,
        context_length=model.context_length,
        mode=default_mode(model),
        health=next((health for state, health in BEST_FIRST if state in states), "offline"),
        workers=len(workers),
        running_calls=sum(row["running_calls"] for row in workers),
        tokens_per_second=sum(row["tokens_per_second"] for row in workers),
        epochs=[str(row["epoch_id"]) for row in workers if row["epoch_id"]],
        queue_depth=waiting,
    )
