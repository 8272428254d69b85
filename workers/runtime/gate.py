"""One gate before a runtime: at most as many calls pass as the runtime runs well, whoever makes them.

Guarantee: a free place goes at once to the waiting call of the lowest priority number; among equals the parties
(chunks) take turns, and within a party the first come is the first served. A place is never lost, however calls are
cancelled. For one event loop. Entering and leaving cost O(1) in calls and parties.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

_Line = OrderedDict[asyncio.Future[None], None]  # the waiting calls of one party, in order of arrival


class Gate:
    """`places` calls may be inside at once."""

    def __init__(self, places: int) -> None:
        if places < 1:
            raise ValueError("a gate without a place would never open")
        self.places = places
        self.inside = 0
        self.waiting = 0  # calls before the gate; counted, as other threads read it
        self._turns: dict[int, OrderedDict[Hashable, _Line]] = {}  # by priority: the parties, next to be served first

    def resize(self, places: int) -> None:
        """Let so many be inside from now on. Of those that are inside already none is put out."""
        self.places = places
        self._admit()

    @asynccontextmanager
    async def passing(self, party: Hashable, priority: int) -> AsyncIterator[None]:
        """Wait for a place, hold it inside the block, give it back."""
        await self._enter(party, priority)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, party: Hashable, priority: int) -> None:
        if self.inside < self.places:
            self.inside += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._turns.setdefault(priority, OrderedDict()).setdefault(party, OrderedDict())[place] = None
        self.waiting += 1
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._forget(place, party, priority)
            else:  # the place had been handed over before the cancel came
                self._leave()
            raise

    def _leave(self) -> None:
        self.inside -= 1
        self._admit()

    def _admit(self) -> None:
        while self._turns and self.inside < self.places:
            priority = min(self._turns)
            turns = self._turns[priority]
            party, line = turns.popitem(last=False)
            place, _ = line.popitem(last=False)
            self.waiting -= 1
            if line:
                turns[party] = line
            elif not turns:
                del self._turns[priority]
            if not place.done():
                place.set_result(None)
                self.inside += 1

    def _forget(self, place: asyncio.Future[None], party: Hashable, priority: int) -> None:
        turns = self._turns.get(priority)
        if turns is None or (line := turns.get(party)) is None or place not in line:
            return  # whoever left found it cancelled and passed it over
        del line[place]
        self.waiting -= 1
        if not line:
            del turns[party]
        if not turns:
            del self._turns[priority]
