"""How many bells are wanted: as many as somebody could answer to some purpose."""

import pytest
from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.jobs.dispatch import WINDOW, wanted_bells
from services.jobs.lease import retire
from tests.factories import MODEL, make_tenant, queue_job
from tests.hearings import a_worker, taken

CHUNK = 32  # items
SLOTS = 4  # of each worker


def bells(engine: Engine) -> dict[str, int]:
    with transaction(engine) as connection:
        return wanted_bells(connection, [MODEL, "other"])


def test_none_where_nothing_is_queued(engine: Engine) -> None:
    a_worker(engine)
    assert bells(engine) == {}


@pytest.mark.parametrize(("chunks", "wanted"), [(3, 3), (20, WINDOW)])
def test_a_few_where_nobody_is_there_to_wake_who_comes(engine: Engine, chunks: int, wanted: int) -> None:
    queue_job(engine, make_tenant(engine), chunks * CHUNK, judges=["other"])
    retire(engine, a_worker(engine, "other"))
    a_worker(engine)
    assert bells(engine) == {"other": wanted}


def test_one_for_each_free_slot(engine: Engine) -> None:
    queue_job(engine, make_tenant(engine), 20 * CHUNK)
    worker, _ = a_worker(engine), a_worker(engine)
    assert bells(engine) == {MODEL: 2 * SLOTS}
    for _ in range(3):
        taken(engine, worker)
    assert bells(engine) == {MODEL: 2 * SLOTS - 3}


def test_of_busy_workers_only_urgent_work_asks_for_more(engine: Engine) -> None:
    tenant = make_tenant(engine)
    queue_job(engine, tenant, 20 * CHUNK, priority="bulk")
    worker = a_worker(engine)
    for _ in range(SLOTS):
        taken(engine, worker)
    assert bells(engine) == {MODEL: 0}
    queue_job(engine, tenant, 2 * CHUNK, priority="interactive")
    assert bells(engine) == {MODEL: 2}
    assert taken(engine, worker).priority == 0
    assert bells(engine) == {MODEL: 1}
    with transaction(engine) as connection:
        connection.execute(text("UPDATE chunk SET state = 'finished' WHERE state = 'running' AND priority > 0"))
    assert bells(engine) == {MODEL: SLOTS + 1}
