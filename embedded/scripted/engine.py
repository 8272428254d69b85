"""The scripted scheduler: slots, a bounded queue, service times, aborts.

Guarantee: at most `slots` calls run and at most `queue` wait; a call that ends, however it ends, gives its slot to the
call that waited longest. An rid is in flight once.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from embedded.scripted.answers import Answer
from embedded.scripted.prefix import PrefixCache, packed

PREFILL_SHARE = 0.2  # of a call's service time; the rest is spread evenly over its tokens


class QueueFull(Exception):
    """As many calls wait as may."""


class DuplicateRid(Exception):
    """A call with this rid is in flight."""


@dataclass(slots=True, eq=False)
class Flight:
    """One call in flight. Times are seconds of the epoch clock, as SGLang reports them; None: did not come to it."""

    rid: str
    prompt: bytes
    prompt_tokens: int
    answer: Answer
    service_s: float
    prefill_s: float
    received: float = field(default_factory=time.time)
    started: float | None = None
    first_token: float | None = None
    finished: float | None = None
    cached_tokens: int = 0
    written: int = 0
    aborted: bool = False
    deaf: bool = False
    _wake: asyncio.Future[None] | None = None

    def computed(self) -> tuple[int, int]:
        """Tokens read and tokens written by now, as a server counts them while a call runs."""
        if self.started is None:
            return 0, 0
        now = self.finished or time.time()
        unread = self.prompt_tokens - self.cached_tokens
        if self.first_token is None:
            seconds = self.service_s * PREFILL_SHARE + self.prefill_s
            return int(unread * min((now - self.started) / seconds, 1.0)) if seconds else unread, 0
        tokens, seconds = len(self.answer.ids), self.service_s * (1 - PREFILL_SHARE)
        steps = int(tokens * min((now - self.first_token) / seconds, 1.0)) if seconds else 0
        return unread, max(self.written, steps)

    def abort(self) -> None:
        """End this call now, with what it has written. A deaf one goes on, as under a dead scheduler."""
        if not self.deaf:
            self.aborted = True
            self.wake()

    def wake(self) -> None:
        """End the present wait."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def wait(self, seconds: float | None) -> None:
        """Until so many seconds have passed (None: for ever), or `wake`."""
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        timer = loop.call_later(seconds, self.wake) if seconds is not None else None
        try:
            await self._wake
        finally:
            self._wake = None
            if timer is not None:
                timer.cancel()


@dataclass(slots=True)
class Counters:
    """What has been served since the start, and the peaks."""

    requests: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    read_tokens: int = 0
    written_tokens: int = 0
    peak_running: int = 0
    peak_waiting: int = 0


class Engine:
    """Runs flights."""

    def __init__(self, slots: int, queue: int | None, cache: PrefixCache) -> None:
        self.slots = slots
        self.queue = queue
        self.cache = cache
        self.counters = Counters()
        self.running: dict[str, Flight] = {}
        self.waiting: OrderedDict[str, Flight] = OrderedDict()

    def admit(self, flight: Flight) -> None:
        """Give the flight a slot or a place in the queue. Raises QueueFull, DuplicateRid. Follow with `run`."""
        if flight.rid in self.running or flight.rid in self.waiting:
            raise DuplicateRid(flight.rid)
        if len(self.running) < self.slots:
            self.running[flight.rid] = flight
            self.counters.peak_running = max(self.counters.peak_running, len(self.running))
        elif self.queue is None or len(self.waiting) < self.queue:
            self.waiting[flight.rid] = flight
            self.counters.peak_waiting = max(self.counters.peak_waiting, len(self.waiting))
        else:
            raise QueueFull

    async def run(self, flight: Flight) -> None:
        """Serve an admitted flight to its end. Cancelling gives its place back."""
        async for _ in self.steps(flight, streamed=False):
            pass

    async def steps(self, flight: Flight, streamed: bool = True) -> AsyncGenerator[None]:
        """Serve an admitted flight; when streamed, yield after each token."""
        try:
            while flight.rid in self.waiting and not flight.aborted:
                await flight.wait(None)
            if not flight.aborted:
                await self._prefill(flight)
                tokens = len(flight.answer.ids)
                step = 1 if streamed else tokens
                seconds = flight.service_s * (1 - PREFILL_SHARE) * step / max(tokens, 1)
                while flight.written < tokens and not flight.aborted:
                    since = time.monotonic()
                    if seconds:
                        await flight.wait(seconds)
                    share = (time.monotonic() - since) / seconds if seconds and flight.aborted else 1.0
                    flight.written = min(flight.written + int(step * min(share, 1.0)), tokens)
                    if streamed and not flight.aborted:
                        yield
        finally:
            self._release(flight)

    def abort(self, rid: str) -> None:
        """Abort one call; unknown ids are ignored."""
        flight = self.running.get(rid) or self.waiting.get(rid)
        if flight is not None:
            flight.abort()

    def abort_all(self) -> None:
        """Abort every call."""
        for flight in [*self.running.values(), *self.waiting.values()]:
            flight.abort()

    def computed(self) -> tuple[int, int]:
        """Tokens read and tokens written since the start, those of running calls included."""
        now = [flight.computed() for flight in self.running.values()]
        return (
            self.counters.read_tokens + sum(read for read, _ in now),
            self.counters.written_tokens + sum(written for _, written in now),
        )

    async def _prefill(self, flight: Flight) -> None:
        flight.started = time.time()
        flight.cached_tokens = min(self.cache.match(flight.prompt), flight.prompt_tokens - 1)
        if seconds := flight.service_s * PREFILL_SHARE + flight.prefill_s:
            await flight.wait(seconds)
        self.cache.insert(flight.prompt)
        flight.first_token = time.time()

    def _release(self, flight: Flight) -> None:
        flight.finished = time.time()
        self.waiting.pop(flight.rid, None)
        if self.running.pop(flight.rid, None) is not None and self.waiting:
            rid, successor = self.waiting.popitem(last=False)
            self.running[rid] = successor
            successor.wake()
        if flight.written > 1:  # the last token's state was never computed
            self.cache.insert(flight.prompt + packed(flight.answer.ids[: flight.written - 1]))
        if flight.deaf:  # a dead scheduler counts nothing
            return
        read, written = flight.computed()
        counters = self.counters
        counters.requests += 1
        counters.aborted += flight.aborted
        counters.prompt_tokens += flight.prompt_tokens
        counters.cached_tokens += flight.cached_tokens
        counters.generation_tokens += flight.written
        counters.read_tokens += read
        counters.written_tokens += written
