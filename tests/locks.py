"""Who waits for a lock: what tests of transactions at once go by, instead of the time."""

from sqlalchemy import Engine, text

from services.foundation.database import transaction

WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")


def sessions_waiting(engine: Engine) -> int:
    """How many sessions of the test's database wait for a lock just now."""
    with transaction(engine) as connection:
        return int(connection.execute(WAITING).scalar_one())
