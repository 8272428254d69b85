"""The roster: which models are served now, by whom, and what waits for them.

Guarantee: every model of the fleet is listed, served or not; a worker counts while its lease lasts, on the database's
clock.
"""

from sqlalchemy import Connection, RowMapping, text

from services.contract.models import CommitteeShown, Health, ModelStatus
from services.foundation.fleet import Fleet, FleetModel
from services.jobs.census import defunct_models
from services.jobs.options import default_mode, task_of
from services.vocabulary import Task, WorkerState

WORKERS = text(
    """
    SELECT model, state, running_calls, tokens_per_second, epoch_id FROM worker
    WHERE lease_until > now() AND state NOT IN ('stopped', 'defunct') ORDER BY started_at
    """
)
WAITING = text("SELECT model, sum(end_seq - first_seq) AS items FROM chunk WHERE state = 'queued' GROUP BY model")

BEST_FIRST: tuple[tuple[WorkerState, Health], ...] = (
    (WorkerState.READY, "ready"),
    (WorkerState.STARTING, "starting"),
    (WorkerState.RESTARTING, "restarting"),
    (WorkerState.DRAINING, "draining"),
    (WorkerState.UNHEALTHY, "unhealthy"),
)


def roster(connection: Connection, fleet: Fleet) -> list[ModelStatus]:
    """Every model of the fleet, by name."""
    workers = connection.execute(WORKERS).mappings().all()
    defunct = defunct_models(connection, [*fleet.models])
    waiting = queue_depths(connection)
    return [
        _status(
            model,
            [row for row in workers if row["model"] == name],
            "defunct" if name in defunct else "offline",
            waiting.get(name, 0),
        )
        for name, model in sorted(fleet.models.items())
    ]


def committees(fleet: Fleet) -> list[CommitteeShown]:
    """Every committee of the fleet, by name."""
    return [
        CommitteeShown(
            name=name,
            members={member.name: list(member.models) for member in committee.members},
            weights={member.name: committee.weights.get(member.name, 1.0) for member in committee.members},
            normalise=committee.normalise,
        )
        for name, committee in sorted(fleet.committees.items())
    ]


def queue_depths(connection: Connection) -> dict[str, int]:
    """Items in queued chunks, by model; models without any are left out."""
    return {row.model: int(row.items) for row in connection.execute(WAITING)}


def _status(model: FleetModel, workers: list[RowMapping], without: Health, waiting: int) -> ModelStatus:
    states = {row["state"] for row in workers}
    return ModelStatus(
        name=model.name,
        protocol=model.protocol,
        weights=model.weights,
        revision=model.revision,
        context_length=model.context_length,
        task=(task := task_of(model)),
        mode=default_mode(model) if task is Task.JUDGE else None,
        health=next((health for state, health in BEST_FIRST if state in states), without),
        workers=len(workers),
        running_calls=sum(row["running_calls"] for row in workers),
        tokens_per_second=sum(row["tokens_per_second"] for row in workers),
        epochs=[str(row["epoch_id"]) for row in workers if row["epoch_id"]],
        queue_depth=waiting,
    )
