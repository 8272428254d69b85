"""The broker: names of queues and tasks, and the Celery instance. No task is defined here.

Guarantee: every model has a queue of its own; publishing and asking for a length end within seconds, even while the
broker hangs. Messages are doorbells: losing one, or all, loses no work.
"""

from celery import Celery

HEAR = "assizes.hear"


def hear_queue(model: str) -> str:
    """The queue of a model's doorbells. Only that model's workers consume it."""
    return f"hear.{model}"


def make_broker(redis_url: str, *, patience: float) -> Celery:
    """A Celery instance over Redis. `patience`: seconds until an unanswered command counts as failed."""
    app = Celery("assizes", broker=redis_url, set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=False,  # the lease is the safety net, not redelivery
        task_serializer="json",
        accept_content=["json"],
        task_create_missing_queues=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        worker_disable_prefetch=True,  # a bell stays in its queue until somebody can answer it
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        broker_transport_options={
            "socket_connect_timeout": patience,
            "socket_timeout": patience,
            "socket_keepalive": True,
            "retry_on_timeout": False,
            "max_retries": 0,
        },
    )
    return app
