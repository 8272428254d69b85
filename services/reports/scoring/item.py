"""One scored text, as a report counts it.

Guarantee: pure, and holds no text but names.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.reports.committee import Assessed, assessed
from services.reports.settled import Settled, settled


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringRow(Settled):
    """What a committee made of one response; None for an item that it was not asked about.

    `suspected`: of injection, by a model of the committee.
    """

    system: str | None
    assessed: Assessed | None
    suspected: bool


def scoring_row(stored: Mapping[Any, Any]) -> ScoringRow:
    """A row out of what is stored: the verdict's columns, the item's `facets`, and the `assessment`."""
    said = json.loads(stored["facets"])
    (system,) = said["systems"]
    return ScoringRow(
        **settled(stored, said),
        classified_tokens=stored["classified_tokens"],
        system=system,
        assessed=assessed(stored["assessment"]),
        suspected=stored["suspected"],
    )
