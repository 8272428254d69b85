"""What a reader of any report must know, as notes of stable codes.

Guarantee: pure, and says nothing that was not counted.
"""

from collections.abc import Iterable, Iterator

from services.contract.reports import parts as wire
from services.reports.rates import MAX_SYSTEMS
from services.reports.settled import SettledTally
from services.stats.intervals import FEW_CLUSTERS


def note(code: str, message: str, judge: str | None = None) -> wire.Note:
    """A note, about one judge if it is named."""
    return wire.Note(code=code, judge=judge, message=message)


def on_items(items: wire.ItemCounts, tally: SettledTally, shared: str, failed: str) -> Iterator[wire.Note]:
    """On items that are not in the figures, and on clusters that nobody named.

    `shared` is what items may share, `failed` what is true of those that failed.
    """
    if items.heard < items.total:
        yield note("incomplete", f"{items.heard} of {items.total} items were heard: all figures are over those.")
    if items.failed.count:
        yield note("failures", f"{items.failed.count} failed items {failed}.")
    if items.heard and not tally.counts["clustered"]:
        yield note(
            "no_clusters",
            f"No item names a cluster, so each counts as one of its own. If items share a {shared}, name it as their "
            "cluster: without, every interval here is too narrow.",
        )


def on_clusters(means: Iterable[wire.OverClusters], called: str = "clusters") -> Iterator[wire.Note]:
    """On intervals over few clusters."""
    few = [mean.clusters for mean in means if 0 < mean.clusters < FEW_CLUSTERS]
    if few:
        yield note(
            "few_clusters",
            f"As few as {min(few)} {called}: below {FEW_CLUSTERS} the intervals over clusters are too narrow.",
        )


def on_systems(omitted: int) -> Iterator[wire.Note]:
    """On systems that are not followed."""
    if omitted:
        yield note("systems_omitted", f"More than {MAX_SYSTEMS} systems: the ones seen later are left out.")
