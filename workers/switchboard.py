"""The switchboard: one event loop, one HTTP session and one gate for all chunks that this worker hears.

Guarantee: every call that is sent yields exactly one `Answer`, unless its chunk hung up first: then it is aborted on
the runtime and yields none. Chunk threads never wait for one another: only the gate decides whose call goes next.
"""

import asyncio
import math
import time
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from queue import SimpleQueue

from services.jobs.answer import Answer
from services.judging.runtime import Call, Completion, Runtime, RuntimeFault, RuntimeUnavailable
from services.vocabulary import FinishReason, Priority
from workers.metrics import WorkerMetrics
from workers.runtime.backlog import Backlog
from workers.runtime.gate import Gate


class Switchboard:
    """Carries calls from chunk threads to the runtime and the answers back."""

    def __init__(self, runtime: Runtime, gate: Gate, loop: asyncio.AbstractEventLoop, metrics: WorkerMetrics) -> None:
        self._runtime = runtime
        self._gate = gate
        self._loop = loop
        self._metrics = metrics
        self._capacity = gate.places
        self._backlog = Backlog(time.monotonic())
        self._tasks: dict[Hashable, set[asyncio.Task[None]]] = {}
        self.completion_tokens = 0
        self.answered_at = -math.inf  # when the last good answer came, on the monotonic clock

    @property
    def running(self) -> int:
        """Calls on the runtime now."""
        return self._gate.inside

    def resize(self, capacity: int) -> None:
        """Have as many calls on the runtime as it runs at once, and the backlog."""
        self._loop.call_soon_threadsafe(self._resize, capacity)

    def send(self, chunk: Hashable, priority: Priority, calls: Sequence[Call], answers: SimpleQueue[Answer]) -> None:
        """Queue calls in this order behind the chunk's earlier ones; answers arrive in `answers` in any order."""
        self._loop.call_soon_threadsafe(self._start, chunk, priority, calls, answers)

    def hang_up(self, chunk: Hashable) -> None:
        """Drop what the chunk still has waiting and abort what runs, and wait until both are done."""
        asyncio.run_coroutine_threadsafe(self._drop(chunk), self._loop).result()

    def _start(self, chunk: Hashable, priority: Priority, calls: Sequence[Call], answers: SimpleQueue[Answer]) -> None:
        tasks = self._tasks.setdefault(chunk, set())
        for call in calls:
            task = self._loop.create_task(self._carry(chunk, priority, call, answers))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def _resize(self, capacity: int) -> None:
        self._capacity = capacity
        self._gate.resize(capacity + self._backlog.calls)

    async def _drop(self, chunk: Hashable) -> None:
        tasks = self._tasks.pop(chunk, set())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, chunk: Hashable, priority: Priority, call: Call, answers: SimpleQueue[Answer]) -> None:
        async with self._gate.passing(chunk, priority):
            sent_at, start = datetime.now(UTC), time.monotonic()
            came: Completion | Exception
            try:
                came = await self._complete(call)
            except asyncio.CancelledError:
                self._metrics.aborted()
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the chunk's thread waits for it
                came = error
        waited = time.monotonic() - start
        self._metrics.answered(came, waited)
        answers.put(Answer(call.rid, came, sent_at, waited))

    async def _complete(self, call: Call) -> Completion:
        came = await self._runtime.complete(call)
        if came.finish_reason is FinishReason.ABORT:  # not by us: what we abort gives no answer
            raise RuntimeUnavailable(RuntimeFault.FAILED, "the runtime aborted the call by itself")
        self.answered_at = time.monotonic()
        self._backlog.ended(self.answered_at)
        self._resize(self._capacity)
        self.completion_tokens += came.completion_tokens or 0
        return came
