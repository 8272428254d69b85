"""The gate before a runtime: who is let in next, and that no place is ever lost."""

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.runtime.gate import Gate


async def settle() -> None:
    """Let every task run until all of them wait."""
    for _ in range(20):
        await asyncio.sleep(0)


class Visitors:
    """Calls that go through a gate and stay inside until told to leave."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.entered: list[str] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leave: dict[str, asyncio.Event] = {}

    def come(self, name: str, party: str, priority: int = 1) -> None:
        """A call arrives."""
        self._leave[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._visit(name, party, priority))

    def leave(self, name: str) -> None:
        """It leaves, when it is inside."""
        self._leave[name].set()

    def cancel(self, name: str) -> None:
        """It is given up, wherever it is."""
        self._tasks[name].cancel()

    async def end(self) -> None:
        """Everybody leaves."""
        for event in self._leave.values():
            event.set()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _visit(self, name: str, party: str, priority: int) -> None:
        async with self.gate.passing(party, priority):
            self.entered.append(name)
            await self._leave[name].wait()


def test_as_many_pass_as_there_are_places() -> None:
    async def scene() -> None:
        visitors = Visitors(Gate(2))
        for name in "abc":
            visitors.come(name, "chunk")
        await settle()
        assert visitors.entered == ["a", "b"]
        assert (visitors.gate.inside, visitors.gate.waiting) == (2, 1)
        visitors.leave("a")
        await settle()
        assert visitors.entered == ["a", "b", "c"]
        await visitors.end()
        assert (visitors.gate.inside, visitors.gate.waiting) == (0, 0)

    asyncio.run(scene())


def test_lower_priority_numbers_go_first_and_parties_take_turns() -> None:
    async def scene() -> None:
        visitors = Visitors(Gate(1))
        visitors.come("first", "x")
        await settle()
        for name in ("x1", "x2", "x3"):
            visitors.come(name, "x")
        for name in ("y1", "y2"):
            visitors.come(name, "y")
        visitors.come("late but urgent", "z", priority=0)
        await settle()
        while visitors.gate.inside:
            visitors.leave(visitors.entered[-1])
            await settle()
        assert visitors.entered == ["first", "late but urgent", "x1", "y1", "x2", "y2", "x3"]

    asyncio.run(scene())


def test_a_place_handed_to_a_call_that_is_cancelled_at_that_moment_is_handed_on() -> None:
    async def scene() -> None:
        visitors = Visitors(Gate(1))
        for name in "abc":
            visitors.come(name, "chunk")
        await settle()
        visitors.leave("a")
        await asyncio.sleep(0)  # a has woken up and hands its place to b, which has not run since
        visitors.cancel("b")
        await settle()
        assert visitors.entered == ["a", "c"]
        await visitors.end()
        assert visitors.gate.inside == 0

    asyncio.run(scene())


def in_line(gate: Gate) -> int:
    """The places in the gate's lines."""
    return sum(len(line) for turns in gate._turns.values() for line in turns.values())


STEPS = st.lists(
    st.tuples(st.sampled_from(["come", "leave", "cancel", "pause"]), st.integers(0, 2), st.integers(0, 2)), max_size=60
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, places=st.integers(1, 3), seed=st.integers(0, 2**16))
def test_no_place_is_lost_whatever_is_cancelled(steps: list[tuple[str, int, int]], places: int, seed: int) -> None:
    async def scene() -> None:
        chance = random.Random(seed)
        visitors = Visitors(Gate(places))
        names: list[str] = []
        for step, party, priority in steps:
            if step == "come":
                names.append(f"call {len(names)}")
                visitors.come(names[-1], f"party {party}", priority)
            elif step == "pause":
                await asyncio.sleep(0)
            elif names and step == "leave":
                visitors.leave(chance.choice(names))
            elif names:
                visitors.cancel(chance.choice(names))
            assert visitors.gate.inside <= places
            assert visitors.gate.waiting == in_line(visitors.gate)
        await settle()
        assert visitors.gate.waiting == 0 or visitors.gate.inside == places
        await visitors.end()
        assert (visitors.gate.inside, visitors.gate.waiting) == (0, 0)
        assert visitors.gate._turns == {}

    asyncio.run(scene())


def test_a_gate_that_grows_lets_in_those_who_wait_and_one_that_shrinks_puts_nobody_out() -> None:
    async def scene() -> None:
        visitors = Visitors(Gate(1))
        for name in "abcd":
            visitors.come(name, "chunk")
        await settle()
        visitors.gate.resize(3)
        await settle()
        assert visitors.entered == ["a", "b", "c"]
        visitors.gate.resize(1)
        assert visitors.gate.inside == 3
        for name in "ab":
            visitors.leave(name)
        await settle()
        assert visitors.entered == ["a", "b", "c"]
        visitors.leave("c")
        await settle()
        assert visitors.entered == ["a", "b", "c", "d"]
        await visitors.end()
        assert visitors.gate.inside == 0

    asyncio.run(scene())
