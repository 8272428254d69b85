"""The broker: names of queues and tasks, and the Celery instance. No task is defined here.

Guarantee: every model has a queue of its own; publishing and asking for a length end within seconds, even while the
broker hangs. Messages are doorbells: losing one, or all, loses no work.
"""

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from services.foundation.errors import AssizesError

HEAR = "assizes.hear"


class BrokerAway(AssizesError):
    """The broker cannot be reached, does not answer in time, or takes no more."""

    code = "broker_away"
    retryable = True


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
        broker_channel_error_retry=True,  # a broker that is full or read-only for now refuses commands: connect again
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


def ring(broker: Celery, model: str, times: int) -> None:
    """Put so many bells into the queue of a model. Raises BrokerAway, with fewer or none of them rung."""
    try:
        with broker.connection_for_write() as connection, connection.Producer() as producer:
            for _ in range(times):
                broker.send_task(HEAR, args=(model,), queue=hear_queue(model), producer=producer, retry=False)
    except (OperationalError, RedisError, OSError) as error:
        raise BrokerAway(type(error).__name__) from error


def waiting(broker: Celery, model: str) -> int:
    """How many bells of a model nobody has answered yet. Raises BrokerAway."""
    try:
        with broker.connection_for_read() as connection:
            return int(connection.default_channel.client.llen(hear_queue(model)))
    except (OperationalError, RedisError, OSError) as error:
        raise BrokerAway(type(error).__name__) from error
