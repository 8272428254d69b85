"""A chunk's thread and its carrier: however answers arrive, every call is sent once and every answer counts once."""

import time
from collections import Counter
from collections.abc import Callable

import pytest
from psycopg import sql
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from embedded.postgres import Postgres
from services.foundation.database import transaction
from services.jobs.execute import hear_chunk
from services.jobs.rescue import rescue_lapsed
from services.judging.judge import Judge
from tests.carriers import Everything, session
from tests.factories import comparisons, make_tenant, queue_job
from tests.hearings import a_worker, taken
from tests.invariants import check_ended_job


def hear(engine: Engine, judge: Judge, carrier: Everything, interrupted: Callable[[], bool] = lambda: False) -> None:
    held = taken(engine, a_worker(engine))
    assert hear_chunk(session(engine, held, judge, carrier, interrupted)) is None


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({"mode": "reason", "decide": "soft"}, 4),  # both orders' follow-ups are opened by answers that come together
        ({"mode": "reason", "samples": 3}, 4),  # whoever always takes the first slot is known to tie after two each
        ({"mode": "direct"}, 2),
    ],
)
def test_answers_that_come_together_open_each_call_once(
    engine: Engine, judge: Judge, options: dict[str, object], calls: int
) -> None:
    job_id = queue_job(engine, make_tenant(engine), 8, options=options)
    carrier = Everything()
    hear(engine, judge, carrier)
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["succeeded"], job["calls"]) == ("completed", 8, 8 * calls)
    assert set(Counter(carrier.sent).values()) == {1}


def test_refused_samples_are_all_asked_and_the_item_fails_for_them(engine: Engine, judge: Judge) -> None:
    job_id = queue_job(engine, make_tenant(engine), 2, options={"mode": "reason", "samples": 2})
    carrier = Everything(refuse=True)
    hear(engine, judge, carrier)
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["failed"], job["calls"]) == ("failed", 2, 8)
    assert set(Counter(carrier.sent).values()) == {1}


def test_calls_that_do_not_fit_open_the_next_ones_until_none_is_left(engine: Engine, judge: Judge) -> None:
    job_id = queue_job(engine, make_tenant(engine), 2, options={"mode": "reason", "samples": 2})
    carrier = Everything()
    hear(engine, judge.within(64), carrier)
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["calls"], carrier.sent) == ("failed", 0, [])


def long(items: int) -> list[dict[str, object]]:
    """Items so long that each of their calls is a portion of its own."""
    return [item | {"candidates": [{"content": "x " * 300_000}, {"content": "y"}]} for item in comparisons(items)]


def test_an_interrupt_is_seen_between_portions_and_the_rest_is_handed_back(engine: Engine, judge: Judge) -> None:
    job_id = queue_job(engine, make_tenant(engine), long(3), options={"mode": "direct"})
    looks = iter([False, False, False])
    hear(engine, judge, Everything(), interrupted=lambda: next(looks, True))
    with transaction(engine) as connection:
        chunk = connection.execute(text("SELECT state, deaths FROM chunk")).one()
        heard = connection.scalar(text("SELECT count(*) FROM trace"))
    assert (tuple(chunk), heard) == (("queued", 0), 2)
    hear(engine, judge, Everything())
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["failed"], job["calls"]) == ("failed", 3, 0)


def test_one_that_is_interrupted_waits_a_lease_for_a_database_that_is_gone(
    engine: Engine, database_url: str, postgres_server: Postgres, judge: Judge
) -> None:
    job_id = queue_job(engine, make_tenant(engine), 2, options={"mode": "direct"})
    lease = 2.0
    held = taken(engine, a_worker(engine, lease=lease))
    name = make_url(database_url).database or ""
    allow = "ALTER DATABASE {} ALLOW_CONNECTIONS {}"
    gone: list[float] = []

    def interrupted() -> bool:
        """Asked for the first time when the chunk is open: from then on the database is away."""
        if not gone:
            with postgres_server.connect() as connection:
                connection.execute(sql.SQL(allow).format(sql.Identifier(name), False))
                connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            gone.append(time.monotonic())
        return True

    with capture_logs() as lines, pytest.raises(OperationalError):
        hear_chunk(session(engine, held, judge, Everything(), interrupted, lease=lease))
    assert lease <= time.monotonic() - gone[0] < 3 * lease
    assert "conclusion_postponed" in [line["event"] for line in lines]
    with postgres_server.connect() as connection:
        connection.execute(sql.SQL(allow).format(sql.Identifier(name), True))
    assert rescue_lapsed(engine, "http://assizes.test") == [held.model]
    hear(engine, judge, Everything())
    assert check_ended_job(engine, job_id)["status"] == "completed"
