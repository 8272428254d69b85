"""The tasks that workers answer. They only hand over: what they do stands in `workers/gpu.py`."""

from celery import Celery

from services.foundation.broker import HEAR
from workers.gpu import GpuWorker


def add_tasks(broker: Celery, worker: GpuWorker) -> None:
    """Register this worker's tasks with its broker."""

    @broker.task(name=HEAR, ignore_result=True)  # type: ignore[untyped-decorator]  # Celery is untyped
    def hear(model: str) -> None:
        worker.hear(model)
