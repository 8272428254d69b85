"""What can go wrong, one function a kind of fault; which one, when and to whom is drawn from one seed."""

import random
import signal
from collections import Counter
from collections.abc import Callable

import httpx

from tests.soak.stack import Part, Stack

Fault = Callable[[Stack, random.Random], bool]


def _mortal(stack: Stack, chance: random.Random, *, but: str = "") -> Part | None:
    parts = [part for part in stack.running() if not part.veteran and not (but and part.name.startswith(but))]
    return chance.choice(parts) if parts else None


def kill(stack: Stack, chance: random.Random) -> bool:
    """kill -9 of anything, runtimes too; it is back within seconds."""
    if (part := _mortal(stack, chance)) is None:
        return False
    stack.kill(part, back_in=chance.uniform(0.0, 5.0))
    return True


def stop(stack: Stack, chance: random.Random) -> bool:
    """SIGTERM."""
    if (part := _mortal(stack, chance)) is None:
        return False
    stack.stop(part)
    return True


def freeze(stack: Stack, chance: random.Random) -> bool:
    """SIGSTOP, for less than a lease or for more; veterans too."""
    parts = list(stack.running())
    if not parts:
        return False
    stack.freeze(chance.choice(parts), seconds=chance.uniform(0.5, 12.0))
    return True


def restart_broker(stack: Stack, chance: random.Random) -> bool:
    """Valkey killed and started again."""
    stack.valkey.restart(chance.choice((signal.SIGKILL, signal.SIGTERM)))
    return True


def flush_broker(stack: Stack, _: random.Random) -> bool:
    """All bells gone."""
    with stack.broker() as client:
        client.flushall()
    return True


def cut_broker(stack: Stack, _: random.Random) -> bool:
    """All connections to Valkey cut."""
    with stack.broker() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    return True


def restart_database(stack: Stack, chance: random.Random) -> bool:
    """PostgreSQL restarted in order, or dropped in the middle of what it does."""
    stack.postgres.restart(chance.choice((signal.SIGINT, signal.SIGQUIT)))
    return True


def cut_database(stack: Stack, _: random.Random) -> bool:
    """All connections to PostgreSQL cut."""
    with stack.postgres.server.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'assizes'")
    return True


def break_runtime(stack: Stack, chance: random.Random) -> bool:
    """Some answers of a runtime are none."""
    faults = ("garbage", "half_body", "unavailable", "stream_error")
    order = {"fault": chance.choice(faults), "times": chance.randint(1, 30)}
    url = chance.choice(list(stack.runtimes.values()))
    try:
        return httpx.post(f"{url}/scripted/fault", json=order, timeout=5).is_success
    except httpx.TransportError:
        return False


WEIGHTS: dict[Fault, int] = {
    kill: 8,
    stop: 4,
    freeze: 5,
    restart_broker: 2,
    flush_broker: 2,
    cut_broker: 2,
    restart_database: 1,
    cut_database: 2,
    break_runtime: 4,
}


class Misfortune:
    """Draws faults. `struck` counts those that came to something, by kind."""

    def __init__(self, stack: Stack, chance: random.Random) -> None:
        self._stack = stack
        self._chance = chance
        self.struck: Counter[str] = Counter()

    def strike(self) -> None:
        """One fault."""
        (fault,) = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if fault(self._stack, self._chance):
            self.struck[fault.__name__] += 1
