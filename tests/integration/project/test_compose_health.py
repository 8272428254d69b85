"""The health checks of the Compose file tell a worker that works from one that does not, on a real PostgreSQL."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from sqlalchemy import Engine, text

from services.foundation.database import make_engine, transaction
from services.foundation.identifiers import new_id
from services.jobs.lease import enrol, renew, retire
from services.vocabulary import WorkerState

ROOT = Path(__file__).resolve().parents[3]
SECRET = "/run/secrets/database_url"


def healthy(service: str, database_url: str, folder: Path) -> bool:
    """What the health check of `service` says, run here instead of in its container."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    script = compose["services"][service]["healthcheck"]["test"][-1]
    assert SECRET in script
    secret = folder / "database_url"
    secret.write_text(database_url + "\n")
    run = subprocess.run([sys.executable, "-c", script.replace(SECRET, str(secret))], capture_output=True, check=False)
    assert run.returncode == 0 or b"AssertionError" in run.stderr, run.stderr
    return run.returncode == 0


@pytest.mark.parametrize("state", [WorkerState.READY, WorkerState.DRAINING])
def test_a_worker_with_a_lease_and_a_runtime_is_healthy(
    engine: Engine, database_url: str, tmp_path: Path, state: WorkerState
) -> None:
    worker_id = new_id()
    enrol(engine, worker_id, "sdrm-4b", socket.gethostname(), 1, 16, 30)
    assert not healthy("sdrm-4b", database_url, tmp_path)  # it is starting
    renew(engine, worker_id, 30, state, 0, 0.0)
    assert healthy("sdrm-4b", database_url, tmp_path)


def test_a_worker_without_a_lease_is_not(engine: Engine, database_url: str, tmp_path: Path) -> None:
    worker_id = new_id()
    enrol(engine, worker_id, "sdrm-4b", socket.gethostname(), 1, 16, 30)
    renew(engine, worker_id, 30, WorkerState.READY, 0, 0.0)
    retire(engine, worker_id)
    assert not healthy("sdrm-4b", database_url, tmp_path)


def test_maintenance_is_healthy_while_it_keeps_asking(database_url: str, tmp_path: Path) -> None:
    assert not healthy("maintenance", database_url, tmp_path)
    maintenance = make_engine(database_url, "assizes-maintenance")
    with transaction(maintenance) as connection:
        connection.execute(text("SELECT 1"))
    assert healthy("maintenance", database_url, tmp_path)
    maintenance.dispose()
