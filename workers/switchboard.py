"""The switchboard: one event loop, one HTTP session and one gate for all chunks that this worker hears.

Guarantee: every call that is sent yields exactly one `Answer`, unless its chunk hung up first: then it is aborted on
the runtime and yields none. Chunk threads never wait for one another: only the gate decides whose call goes next.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine, Hashable, Sequence
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any, TypeVar

from services.jobs.answer import Answer
from services.judging.runtime import Call, Completion, Runtime, RuntimeFault, RuntimeUnavailable
from services.vocabulary import FinishReason, Priority
from workers.runtime.gate import Gate

T = TypeVar("T")


class Switchboard:
    """Carries calls from chunk threads to the runtime and the answers back."""

    def __init__(self, runtime: Runtime, gate: Gate, loop: asyncio.AbstractEventLoop) -> None:
        self._runtime = runtime
        self._gate = gate
        self._loop = loop
        self._tasks: dict[Hashable, set[asyncio.Task[None]]] = {}
        self.completion_tokens = 0

    @property
    def running(self) -> int:
        """Calls on the runtime now."""
        return self._gate.inside

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
            except Exception as error:  # noqa: BLE001 - whatever it is, the chunk's thread waits for it
                came = error
        answers.put(Answer(call.rid, came, sent_at, time.monotonic() - start))

    async def _complete(self, call: Call) -> Completion:
        came = await self._runtime.complete(call)
        if came.finish_reason is FinishReason.ABORT:  # not by us: what we abort gives no answer
            raise RuntimeUnavailable(RuntimeFault.FAILED, "the runtime aborted the call by itself")
        self.completion_tokens += came.completion_tokens or 0
        return came


class LoopThread:
    """An event loop in a thread of its own, for as long as the `with` block lasts."""

    def __enter__(self) -> "LoopThread":
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="switchboard", daemon=True)
        self._thread.start()
        return self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
