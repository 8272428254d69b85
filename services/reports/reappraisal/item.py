"""One heard scenario, as a report counts it.

Guarantee: pure, and holds no text but names. What was not written, chosen or compared is None.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.judging.opinion import Opinion
from services.reports.committee import Assessed, assessed
from services.reports.item import ItemRow
from services.reports.settled import Settled, settled
from services.vocabulary import Outcome


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt at a candidate came to; `attempt` counts from 0. `sentences` is None where nothing was read."""

    attempt: int
    outcome: Outcome
    sentences: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReappraisalRow(Settled):
    """What was written for a scenario, what was chosen, and how a judge compares that with the item's baselines.

    `selected` is the chosen one's place in `attempts`. `baselines` are the systems that wrote them.
    `suspected`: of injection, by the writer or by a model of the committee.
    """

    attempts: tuple[Attempt, ...] | None
    selected: int | None
    assessed: Assessed | None
    baselines: tuple[str | None, ...]
    opinion: Opinion | None
    suspected: bool


def reappraisal_row(stored: Mapping[Any, Any]) -> ReappraisalRow:
    """A row out of what is stored: the verdict's columns, the item's `facets`, and what its stages left.

    `texts` is JSON text of all that was written; what the texts say is not looked at.
    """
    said = json.loads(stored["facets"])
    written = None if stored["texts"] is None else json.loads(stored["texts"])
    return ReappraisalRow(
        **settled(stored, said),
        classified_tokens=stored["classified_tokens"],
        attempts=None
        if written is None
        else tuple(Attempt(one["attempt"], Outcome(one["outcome"]), one["sentences"]) for one in written),
        selected=stored["selected"],
        assessed=assessed(stored["assessment"]),
        baselines=tuple(said["systems"]),
        opinion=None if stored["opinion"] is None else Opinion.from_json(json.loads(stored["opinion"])),
        suspected=stored["suspected"],
    )


def comparison(row: ReappraisalRow, opinion: Opinion, systems: tuple[str | None, ...]) -> ItemRow:
    """The comparison of the chosen text, candidate 0, with the baselines, as an item of a judgement."""
    standing = opinion.standing
    return ItemRow(
        seq=row.seq,
        status=row.status,
        error=opinion.error,
        cluster=row.cluster,
        calls=row.calls,
        prompt_tokens=row.prompt_tokens,
        cached_tokens=row.cached_tokens,
        completion_tokens=row.completion_tokens,
        winner=opinion.winner if standing is None else standing.winner,
        standing=standing,
        disagreement=None,
        label=None,
        systems=systems,
        opinions=(opinion,),
    )
