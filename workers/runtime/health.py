"""Whether a runtime is well, hung or broken, and when to start it anew: decided from what was seen, at given times.

Guarantee: pure. A runtime whose tokens advance is slow, never hung, however long no call comes back. One that is not
well is well again only when it has answered a canary. All times are seconds of one monotonic clock.
"""

import random

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0  # between two starts
LONGEST_CANARY_PAUSE = 10.0  # between two canaries that came back bad
WINDOW = 1800.0  # of being well, after which earlier failures are forgotten
STILL_LOOKS = 2  # looks in a row that see no token more: then it is hung
SILENT_LOOKS = 4  # looks in a row that are not answered: a busy server may take its time with that, too


def pause(tries: int, longest: float) -> float:
    """Seconds to wait after so many earlier tries: 1 doubling to `longest`, less up to a fifth at random."""
    return min(FIRST_PAUSE * 2.0 ** min(tries, 10), longest) * random.uniform(0.8, 1.0)  # noqa: S311 - spreads tries


class Failures:
    """The failures of a launched runtime since one of its servers was well for `WINDOW`: `limit` are too many.

    However long a start takes, it is no time of being well.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    def add(self) -> float | None:
        """Count one. Returns the pause before the next start, None when there is to be none."""
        self._count += 1
        if self._count >= self._limit:
            return None
        return pause(self._count - 1, LONGEST_PAUSE)

    def outlived(self, seconds: float) -> None:
        """A server has ended that was well for so long."""
        if seconds >= WINDOW:
            self._count = 0


class Health:
    """The health of a runtime that has just been met: not well until it has answered a first canary.

    After `patience` seconds without an answer it owes one to a canary, and as long again it has for that. Meanwhile
    its tokens are looked at, twice in that time. Looks that are not answered say less than looks that see it stand
    still: of those it takes more.
    """

    def __init__(self, patience: float, now: float) -> None:
        self.well = False
        self._patience = patience
        self._alive_at = now  # its last answer, or the last look that saw more tokens
        self._well_since = now
        self._first_well_at: float | None = None
        self._bad_since: float | None = None
        self._tries = 0
        self._ask_at = now
        self._look_at = now
        self._tokens: float | None = None
        self._still = 0.0  # of what it takes to be hung

    @property
    def hung(self) -> bool:
        """No answer to a canary, and no token more in as many looks as it takes."""
        return self._still >= 1.0

    @property
    def well_for(self) -> float:
        """Seconds from its first good canary to its last sign of life."""
        return 0.0 if self._first_well_at is None else self._alive_at - self._first_well_at

    def broken(self, now: float) -> bool:
        """For as long as its patience lasts all canaries came back bad."""
        return self._bad_since is not None and now - self._bad_since >= self._patience

    def canary_due(self, now: float) -> bool:
        """Whether to send a canary, when none is under way. While ordinary calls are answered none is needed."""
        return now - self._alive_at >= self._patience if self.well else now >= self._ask_at

    def look_due(self, now: float) -> bool:
        """Whether to look at the tokens, while a canary is under way."""
        return now >= self._look_at

    def answered(self, at: float) -> None:
        """Its last good answer to an ordinary call came at that time."""
        if at > self._alive_at:
            self._alive_at = at
            self._still = 0

    def canary_sent(self, now: float, tokens: float | None) -> None:
        """A canary is under way. `tokens`: what the runtime has counted so far, None where it does not say."""
        self._tokens = tokens
        self._still = 0
        self._look_at = now + self._patience / STILL_LOOKS

    def looked(self, now: float, tokens: float | None) -> None:
        """The canary is still under way. Any other count is progress: a server that was started anew has less.

        `tokens` is None for a look that was not answered.
        """
        if tokens is None:
            self._still += 1 / SILENT_LOOKS
        elif tokens == self._tokens:
            self._still += 1 / STILL_LOOKS
        else:
            self._alive_at, self._tokens, self._still = now, tokens, 0
        self._look_at = now + self._patience / STILL_LOOKS

    def canary_answered(self, now: float) -> None:
        """It answered as it should."""
        if not self.well:
            self.well, self._well_since = True, now
        if self._first_well_at is None:
            self._first_well_at = now
        self._alive_at, self._bad_since, self._still = now, None, 0

    def canary_failed(self, now: float) -> None:
        """It answered badly, or not at all and was given up."""
        if self._bad_since is None:
            self._bad_since = now
        self._fall_ill(now)

    def doubted(self, now: float) -> None:
        """An ordinary call came back as from a runtime that is away."""
        if self.well:
            self._fall_ill(now)

    def _fall_ill(self, now: float) -> None:
        if self.well and now - self._well_since >= self._patience:
            self._tries = 0  # it has been well for a while: what happens now is new
        self.well, self._still = False, 0
        self._ask_at = now + pause(self._tries, LONGEST_CANARY_PAUSE)
        self._tries += 1
