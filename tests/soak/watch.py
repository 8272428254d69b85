"""What must not grow: the memory of processes that live through, the broker's keys and bytes.

Guarantee: only samples of one and the same process are compared, the last quarter of the run with its second one.
"""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import redis

from tests.parts import resident
from tests.soak.stack import Part, Stack

EVERY = 2.0  # seconds between two samples
FLAT = 1.05  # median of the last quarter to that of the second
LONG_ENOUGH = 600.0  # seconds of a run from which on memory is judged: before, caches still fill
MOST_KEYS = 100
MOST_BYTES = 32 << 20


class Watch:
    """Takes samples."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._began = self._last = time.monotonic()
        self._resident: dict[tuple[str, int], list[tuple[float, float]]] = {}
        self.most_keys = 0
        self.most_bytes = 0

    def tick(self) -> None:
        """One sample, if it is time for one."""
        now = time.monotonic()
        if now - self._last < EVERY:
            return
        self._last = now
        for part in self._stack.parts:
            if part.veteran and part.child is not None:
                self._resident.setdefault((part.name, part.child.pid), []).append((now, _of_all(part)))
        try:
            with self._stack.broker() as client:
                self.most_keys = max(self.most_keys, int(client.dbsize()))
                self.most_bytes = max(self.most_bytes, int(client.info("memory")["used_memory"]))
        except redis.RedisError:
            pass  # it has just been killed: the next sample tells

    def growth(self) -> dict[str, tuple[float, float]]:
        """MiB of each veteran: the medians of the second quarter and of the last one."""
        quarter = (time.monotonic() - self._began) / 4
        return {
            name: (
                _median(samples, self._began + quarter, self._began + 2 * quarter),
                _median(samples, self._began + 3 * quarter, self._began + 4 * quarter),
            )
            for (name, _), samples in self._resident.items()
        }

    def breaches(self) -> list[str]:
        """What has grown that must not."""
        found = []
        if time.monotonic() - self._began >= LONG_ENOUGH:
            for name, (second, last) in self.growth().items():
                if not last <= FLAT * second:
                    found.append(f"{name} grew from {second:.1f} to {last:.1f} MiB")
        if self.most_keys > MOST_KEYS or self.most_bytes > MOST_BYTES:
            found.append(f"the broker held {self.most_keys} keys and {self.most_bytes} bytes")
        return found


def _of_all(part: Part) -> float:
    """MiB of a part's process and its children, which share some of it: only changes say anything."""
    assert part.child is not None
    pid = part.child.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(resident, [pid, *map(int, children)]))


def _median(samples: Sequence[tuple[float, float]], since: float, until: float) -> float:
    within = [size for at, size in samples if since <= at < until]
    return statistics.median(within) if within else float("nan")
