"""The backlog: how many calls should wait in the runtime's own queue, beyond those that it runs.

Guarantee: as many as the runtime ends in a tenth of a second. So it has the next one at hand when one ends, and what is
urgent, which overtakes all that wait in our gate but nothing in the runtime's queue, waits there no longer than that.
"""

import math

SECONDS = 0.1
LEAST, LONGEST = 2, 100  # calls; the runtime's queue takes no more (`launch.DEFAULT_FLAGS`)
WINDOW = 1.0  # seconds over which the rate is taken


class Backlog:
    """Counts calls as they end. `calls` is the size that follows from their rate."""

    def __init__(self, now: float) -> None:
        self.calls = LEAST
        self._since = now
        self._ended = 0

    def ended(self, now: float) -> None:
        """Note that a call has ended; `now` are seconds of any clock that only goes forward."""
        self._ended += 1
        if (passed := now - self._since) >= WINDOW:
            self.calls = min(max(math.ceil(SECONDS * self._ended / passed), LEAST), LONGEST)
            self._since, self._ended = now, 0
