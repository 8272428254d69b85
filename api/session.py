"""What a request works with, and its transaction.

Guarantee: one request is one transaction. It begins when the body has been read and ends before the answer is sent, so
that neither a slow sender nor a slow reader ever holds one open. (Whose key it is was asked before, in a transaction of
its own.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flask import Flask, current_app
from sqlalchemy import Connection, Engine

from api.metrics import Metrics
from services.foundation.database import transaction
from services.foundation.fleet import Fleet
from services.foundation.settings import Settings
from services.jobs.dispatch import Bell

EXTENSION = "assizes"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the composition root put together. `probe` looks after the database: in time, and beside the requests."""

    settings: Settings
    fleet: Fleet
    engine: Engine
    probe: Engine
    bell: Bell
    metrics: Metrics


def install(app: Flask, parts: Parts) -> None:
    """Make `parts` the app's."""
    app.extensions[EXTENSION] = parts


def parts() -> Parts:
    """The parts of the app that answers the current request."""
    found = current_app.extensions[EXTENSION]
    assert isinstance(found, Parts)
    return found


@contextmanager
def session() -> Iterator[Connection]:
    """The current request's transaction: committed at the end of the block, rolled back when it raises."""
    with transaction(parts().engine) as connection:
        yield connection
