"""Which errors of PostgreSQL are waited out, and which are not: tried again they would come again."""

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DatabaseError

from services.foundation.database import PASSING, transaction


def raised(engine: Engine, sqlstate: str) -> DatabaseError:
    """What a transaction raises in which PostgreSQL does."""
    with pytest.raises(DatabaseError) as caught, transaction(engine) as connection:
        connection.execute(text(f"DO $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{sqlstate}'; END $$"))
    return caught.value


@pytest.mark.parametrize(
    "sqlstate",
    [
        pytest.param("53100", id="disk full"),
        pytest.param("53300", id="too many connections"),
        pytest.param("25006", id="read-only"),
        pytest.param("25P03", id="idle in a transaction"),
        pytest.param("40001", id="serialization"),
        pytest.param("40P01", id="deadlock"),
        pytest.param("55P03", id="lock not available"),
        pytest.param("57014", id="cancelled"),
        pytest.param("57P01", id="shut down by an administrator"),
        pytest.param("57P02", id="crashed"),
        pytest.param("58030", id="input or output"),
    ],
)
def test_what_passes_by_itself_is_waited_out(engine: Engine, sqlstate: str) -> None:
    assert isinstance(raised(engine, sqlstate), PASSING)


@pytest.mark.parametrize(
    "sqlstate",
    [
        pytest.param("54000", id="beyond a limit"),
        pytest.param("XX000", id="internal"),
        pytest.param("23505", id="unique"),
        pytest.param("22021", id="not in the repertoire"),
        pytest.param("42501", id="privileges"),
    ],
)
def test_what_comes_again_is_not(engine: Engine, sqlstate: str) -> None:
    error = raised(engine, sqlstate)
    assert not isinstance(error, PASSING)
    assert getattr(error.orig, "sqlstate", None) == sqlstate
