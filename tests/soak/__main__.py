"""`python -m tests.soak --minutes N [--seed S]`: the whole service under load, while whatever can break does.

Guarantee: it exits with 0 only if every job that was accepted is there and has ended, every invariant holds for each,
every callback was told, no item was blamed for a fault, no part ended by itself, and nothing grew that must not.
"""

import argparse
import json
import random
import shutil
import socket
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import httpx
from sqlalchemy import text

from services.foundation.database import transaction
from tests.invariants import check_ended_job, check_told
from tests.soak.faults import Misfortune
from tests.soak.load import Callers, Receiver
from tests.soak.stack import Stack, Stuck
from tests.soak.watch import Watch

CALM = 20.0  # seconds at the beginning without a fault
BETWEEN = (1.0, 8.0)  # seconds between two faults
TICK = 0.25
WRONG = {"400", "404", "409", "422", "500"}  # what no caller did anything for
LAST_JOBS = 600.0  # seconds after the last fault within which every job must have ended
BLAMED = text(
    "SELECT job_id, seq, error_code, error_message FROM verdict WHERE error_code IN ('poisoned', 'runtime_error')"
)
OPEN = text("SELECT id, status FROM job WHERE ended_at IS NULL")
UNTOLD = text("SELECT count(*) FROM delivery WHERE state = 'pending'")
DUE = text("UPDATE delivery SET next_at = now() WHERE state = 'pending' AND next_at > now() + interval '1 minute'")
JOBS = text("SELECT id, kind, status, callback FROM job ORDER BY id")
DEATHS = text("SELECT cause, alone, count(*) AS claims FROM death GROUP BY cause, alone ORDER BY cause, alone")


def free_ports(count: int) -> list[int]:
    """TCP ports on which nothing listens."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def endure(stack: Stack, receiver: Receiver, minutes: float, seed: int) -> int:
    """Run, mend, check and report. Returns the number of breaches."""
    wait_until_ready(stack)
    callers = Callers(stack, random.Random(f"{seed} callers"), receiver)
    chance = random.Random(f"{seed} faults")
    misfortune, watch = Misfortune(stack, chance), Watch(stack)
    began = time.monotonic()
    until = began + 60 * minutes
    strike_at = began + CALM
    while (now := time.monotonic()) < until:
        stack.tick()
        callers.tick()
        watch.tick()
        if now >= strike_at:
            misfortune.strike()
            strike_at = time.monotonic() + chance.uniform(*BETWEEN)
        time.sleep(TICK)
    stack.calm_down()
    breaches = watch.breaches() + finish(stack) + check_all(stack, callers)
    tell(stack, callers, misfortune, watch, breaches)
    return len(breaches)


def wait_until_ready(stack: Stack) -> None:
    """Start everything and wait until both APIs answer."""
    deadline = time.monotonic() + 120
    for url in stack.apis:
        while True:
            stack.tick()
            try:
                if httpx.get(f"{url}/readyz", timeout=5).is_success:
                    break
            except httpx.TransportError:
                pass  # it is not there yet
            if time.monotonic() > deadline:
                raise Stuck(f"{url} is not ready")
            time.sleep(TICK)


def finish(stack: Stack) -> list[str]:
    """Let every job end and every callback be told; what did not in time."""
    deadline = time.monotonic() + LAST_JOBS
    while time.monotonic() < deadline:
        stack.tick()
        with transaction(stack.engine) as connection:
            left = connection.execute(OPEN).all()
            connection.execute(DUE)  # nobody waits for the hours of a schedule
            untold = connection.scalar(UNTOLD)
        if not left and not untold:
            return []
        time.sleep(1)
    return [f"job {job.id} is {job.status}" for job in left] + ([f"{untold} ends are not told"] if untold else [])


def check_all(stack: Stack, callers: Callers) -> list[str]:
    """What is wrong with the jobs."""
    found = [f"{count} answers {code}" for code, count in callers.answers.items() if code in WRONG]
    with transaction(stack.engine) as connection:
        jobs = connection.execute(JOBS).all()
        found += [f"{row.error_code}: item {row.seq} of {row.job_id}" for row in connection.execute(BLAMED)]
    found += [f"job {job_id} has vanished" for job_id in set(callers.accepted) - {job.id for job in jobs}]
    for job in jobs:
        try:
            check_ended_job(stack.engine, job.id)
            if job.callback is not None:
                check_told(stack.engine, job.id)
        except AssertionError as error:
            found.append(f"{job.kind} {job.id}, {job.status}: {error}")
    return found


def tell(stack: Stack, callers: Callers, misfortune: Misfortune, watch: Watch, breaches: list[str]) -> None:
    """Say what happened, as JSON."""
    with transaction(stack.engine) as connection:
        statuses = connection.execute(text("SELECT status, count(*) FROM job GROUP BY status")).all()
        items = connection.scalar(text("SELECT sum(total) FROM job"))
        deaths = [dict(row) for row in connection.execute(DEATHS).mappings()]
    report = {
        "jobs": dict(map(tuple, statuses)),
        "items": items,
        "answers": dict(callers.answers),
        "faults": dict(misfortune.struck),
        "deaths": deaths,
        "resident_mib": {name: [round(size, 1) for size in sizes] for name, sizes in watch.growth().items()},
        "broker": {"most_keys": watch.most_keys, "most_bytes": watch.most_bytes},
        "breaches": breaches,
    }
    print(json.dumps(report, indent=2))


def main() -> int:
    """Returns the exit status: 0, or 1 after any breach."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="which faults; by default another one each time")
    given = parser.parse_args()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="assizes-soak-", dir="/tmp"))
    print(f"logs and data in {folder}", flush=True)
    with closing(Receiver()) as receiver, closing(Stack(folder, free_ports(4))) as stack:
        try:
            breaches = endure(stack, receiver, given.minutes, seed)
        except Stuck as stuck:
            print(stuck)
            return 1
    if breaches:
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
