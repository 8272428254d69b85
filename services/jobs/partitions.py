"""The daily partitions of `trace`: made a week ahead, and at need when a job is submitted.

Guarantee: once a job's transaction has committed, the partition of its traces is there. When it is there no more, the
traces of that day have been pruned: not while anybody holds the day.
"""

from datetime import date, timedelta

from sqlalchemy import Connection, text

THERE = text("SELECT to_regclass(:name) IS NOT NULL")
PARTITION_LOCK = 0x7472616365  # one maker at a time; the others then find the partition there
DAY_LOCK = 0x64617973  # of one day: shared by those who need its traces to stay, alone for who drops them
HOLD_DAY = text(f"SELECT pg_advisory_xact_lock_shared({DAY_LOCK}, :day)")
TAKE_DAY = text(f"SELECT pg_advisory_xact_lock({DAY_LOCK}, :day)")


def ensure_partition(connection: Connection, day: date) -> None:
    """Make the partition of `day` (UTC), if it is not there yet, within the caller's transaction."""
    if traces_kept(connection, day):
        return
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": PARTITION_LOCK})
    following = day + timedelta(days=1)
    connection.execute(
        text(f"CREATE TABLE IF NOT EXISTS {_name(day)} PARTITION OF trace FOR VALUES FROM ('{day}') TO ('{following}')")
    )


def traces_kept(connection: Connection, day: date) -> bool:
    """Whether the partition of `day` is there: false once the traces of the jobs made then have been pruned."""
    kept: bool = connection.execute(THERE, {"name": _name(day)}).scalar_one()
    return kept


def hold_traces(connection: Connection, day: date) -> bool:
    """Whether the traces of `day` are kept: if so, until the transaction has ended."""
    connection.execute(HOLD_DAY, {"day": day.toordinal()})
    return traces_kept(connection, day)


def take_traces(connection: Connection, day: date) -> None:
    """Wait until nobody holds the traces of `day`, and let nobody hold them until the transaction has ended."""
    connection.execute(TAKE_DAY, {"day": day.toordinal()})


def drop_partition(connection: Connection, day: date) -> str:
    """Drop the traces of `day`, which the transaction has taken. Returns the partition's name."""
    connection.execute(text(f"DROP TABLE {_name(day)}"))
    return _name(day)


def ensure_coming_week(connection: Connection) -> None:
    """Make today's partition and the next seven."""
    today: date = connection.execute(text("SELECT (now() AT TIME ZONE 'utc')::date")).scalar_one()
    for offset in range(8):
        ensure_partition(connection, today + timedelta(days=offset))


def _name(day: date) -> str:
    return f"trace_{day:%Y_%m_%d}"
