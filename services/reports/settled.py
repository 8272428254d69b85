"""What a report of any kind needs of a heard item, and what it counts of all of them.

Guarantee: pure, and keeps counts alone.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.contract.reports import parts as wire
from services.reports.rates import share, spent
from services.vocabulary import ItemError, ItemStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A heard item: what became of it, and what that took.

    `classified_tokens` are those of the prompt tokens that classifiers read: how many were cached nobody knows.
    """

    seq: int
    status: ItemStatus
    error: ItemError | None
    cluster: str | None
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    classified_tokens: int = 0

    @property
    def succeeded(self) -> bool:
        """True unless it failed."""
        return self.status is ItemStatus.SUCCEEDED


def settled(stored: Mapping[Any, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of Settled, out of the verdict's columns and the item's facets."""
    return {
        "seq": stored["seq"],
        "status": ItemStatus(stored["status"]),
        "error": ItemError(stored["error_code"]) if stored["error_code"] else None,
        "cluster": said["cluster"],
        "calls": stored["calls"],
        "prompt_tokens": stored["prompt_tokens"],
        "cached_tokens": stored["cached_tokens"],
        "completion_tokens": stored["completion_tokens"],
    }


@dataclass(slots=True)
class SettledTally:
    """What one pass keeps of the items, whatever they are."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[ItemError] = field(default_factory=Counter)

    def add(self, row: Settled, *, suspected: bool) -> None:
        """Count one item. `suspected`: of injection, by whoever read its texts."""
        self.counts.update(
            heard=1,
            succeeded=row.succeeded,
            clustered=row.cluster is not None,
            injection_suspected=suspected,
            calls=row.calls,
            prompt_tokens=row.prompt_tokens,
            cached_tokens=row.cached_tokens,
            completion_tokens=row.completion_tokens,
            classified_tokens=row.classified_tokens,
        )
        if row.error is not None:
            self.errors[row.error] += 1

    def items(self, total: int) -> wire.ItemCounts:
        """What became of the items, out of `total`."""
        n = self.counts
        return wire.ItemCounts(
            total=total,
            heard=n["heard"],
            succeeded=share(n["succeeded"], n["heard"]),
            failed=share(n["heard"] - n["succeeded"], n["heard"]),
            errors=dict(self.errors),
            injection_suspected=share(n["injection_suspected"], n["heard"]),
        )

    def usage(self, job: wire.ReportedJob) -> wire.Usage:
        """What the items took."""
        seconds = (job.ended_at - job.started_at).total_seconds() if job.started_at and job.ended_at else None
        calls = self.counts["calls"]
        return wire.Usage(
            **dict(spent(self.counts)), seconds=seconds, calls_per_second=calls / seconds if seconds else None
        )
