"""PostgreSQL: one engine a process, one transaction a request or task, COPY for what is big.

Guarantee: a session that stalls inside a transaction is killed by the server (it then counts as fenced), so no lock
outlives its owner by more than ten seconds. A server that vanishes is missed within half a minute.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.pool import NullPool

# What passes by itself: the server is away, full or read-only for now, or has killed this session. Others are ours.
PASSING = (OperationalError, InterfaceError, InternalError)
# Of these, what comes again however often it is tried: a row beyond PostgreSQL's limits, or one that it fails at.
LASTING = ("54", "XX000")

IDLE_IN_TRANSACTION = "10s"
LOCK_TIMEOUT = "5s"
CONNECT_TIMEOUT = 5  # seconds
# A server that vanishes without a word is missed within half a minute; by the kernel's own settings it may be a quarter
# of an hour, or for ever. libpq ignores all of these on a socket of the file system.
KEEPALIVE = {
    "keepalives_idle": 15,  # seconds
    "keepalives_interval": 5,  # seconds
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}


def worker_sessions(worker_id: object) -> str:
    """What the sessions of a worker call themselves: by this name they can be ended from outside."""
    return f"assizes-worker {worker_id}"


def make_engine(url: str, name: str, pool_size: int | None = 8, *, patience: int | None = None) -> Engine:
    """An engine whose sessions call themselves `name` in pg_stat_activity. `pool_size` None keeps no connections.

    `patience`: seconds that connecting, and each statement, may take; by default a statement may take for ever.
    Its errors never show bound values, which may be callers' texts.
    """
    options = (
        f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION} -c lock_timeout={LOCK_TIMEOUT} -c timezone=UTC"
    )
    if patience is not None:
        options += f" -c statement_timeout={patience}s"
    arguments = {
        "options": options,
        "application_name": name,
        "connect_timeout": patience or CONNECT_TIMEOUT,
        **KEEPALIVE,
    }
    if pool_size is None:
        return create_engine(url, poolclass=NullPool, connect_args=arguments, hide_parameters=True)
    return create_engine(
        url, pool_size=pool_size, max_overflow=4, pool_pre_ping=True, connect_args=arguments, hide_parameters=True
    )


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction: committed at the end of the block, rolled back when it raises.

    What does not pass by itself is raised as a plain DatabaseError, which is none of `PASSING`.
    """
    try:
        with engine.begin() as connection:
            yield connection
    except PASSING as error:
        if isinstance(error.orig, psycopg.Error) and (error.orig.sqlstate or "").startswith(LASTING):
            raise DatabaseError(error.statement, None, error.orig, hide_parameters=True) from error
        raise


def copy_rows(connection: Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """COPY `rows` into `table` within the connection's transaction; memory does not grow with their number.

    Returns the number of rows sent. `table` and `columns` are ours, never a caller's. Raises SQLAlchemy's errors,
    without the row that PostgreSQL quotes.
    """
    driver = connection.connection.driver_connection
    assert driver is not None
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
    count = 0
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
                count += 1
    except psycopg.Error as error:
        bare = type(error)(error.diag.message_primary or str(error).partition("\n")[0])
        raise DBAPIError.instance(
            statement, None, bare, psycopg.Error, hide_parameters=True, dialect=connection.dialect
        ) from None
    return count
