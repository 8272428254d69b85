"""Reappraisal and scoring jobs and their heard items, to build reports of."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from services.contract.options import CommitteeSettings
from services.contract.reports.reappraisal import ReportedReappraisal
from services.contract.reports.scoring import ReportedScoring
from services.reports.committee import Assessed, ScoredText
from services.reports.reappraisal.item import Attempt, ReappraisalRow
from services.reports.scoring.item import ScoringRow
from services.vocabulary import ItemError, ItemStatus, JobStatus, Outcome
from tests.unit.reports.rows import START

MODELS = {"seeds": ["seed0", "seed1"], "grm": ["grm"]}
DECIDED = Outcome.DECIDED
RUN: dict[str, Any] = {
    "id": "job_1",
    "name": "nightly",
    "status": JobStatus.COMPLETED,
    "created_at": START,
    "started_at": START + timedelta(seconds=1),
    "ended_at": START + timedelta(seconds=11),
}


def committee(**changes: Any) -> CommitteeSettings:
    """A committee of an ensemble of two reward models and a third model."""
    facts: dict[str, Any] = {
        "name": "reappraisal",
        "members": MODELS,
        "judges": {},
        "weights": {"seeds": 1.0, "grm": 1.0},
        "normalise": "reference",
        "anchors": "0" * 64,
    }
    return CommitteeSettings(**facts | changes)


def reappraisals(**changes: Any) -> ReportedReappraisal:
    """A finished reappraisal job without a committee and without a comparison."""
    facts: dict[str, Any] = {
        "model": "writer",
        "candidates": 1,
        "gate_retries": 2,
        "committee": None,
        "compare": None,
        "pool": None,
        "selected_on": (),
    }
    return ReportedReappraisal(**RUN | facts | changes)


def scorings(**changes: Any) -> ReportedScoring:
    """A finished scoring job."""
    return ReportedScoring(**RUN | {"committee": "reappraisal"} | changes)


def text(outcome: Outcome = Outcome.ACCEPTED, sentences: int | None = 2, attempt: int = 0) -> Attempt:
    """One attempt at a candidate."""
    return Attempt(attempt, outcome, sentences)


def scored(*z: Sequence[float], places: Sequence[int] | None = None) -> Assessed:
    """What the committee made of texts of which every member has a z: one of `seeds` and one of `grm` a text."""
    return Assessed(
        texts=len(z),
        outcomes={model: (DECIDED,) * len(z) for models in MODELS.values() for model in models},
        scored=tuple(
            ScoredText(place, dict(zip(MODELS, one, strict=True)), float(np.std(one)), guarded(one))
            for place, one in zip(range(len(z)) if places is None else places, z, strict=True)
        ),
    )


def guarded(z: Sequence[float]) -> float:
    """The score that two members of one weight give."""
    return float(np.mean(z) - 0.5 * np.std(z))


def unscored(outcomes: Mapping[str, Outcome]) -> Assessed:
    """What the committee made of one text that these models did not score."""
    models = [model for models in MODELS.values() for model in models]
    return Assessed(1, {model: (outcomes.get(model, DECIDED),) for model in models}, ())


def _settled(seq: int, error: ItemError | None) -> dict[str, Any]:
    return {
        "seq": seq,
        "status": ItemStatus.SUCCEEDED if error is None else ItemStatus.FAILED,
        "error": error,
        "cluster": None,
        "calls": 3,
        "prompt_tokens": 100,
        "cached_tokens": 25,
        "completion_tokens": 40,
    }


def reappraised(seq: int, *attempts: Attempt, error: ItemError | None = None, **changes: Any) -> ReappraisalRow:
    """A heard scenario; unless texts are given, with one that passed the gate and was chosen."""
    written = attempts or (text(),)
    accepted = [place for place, one in enumerate(written) if one.outcome is Outcome.ACCEPTED]
    facts: dict[str, Any] = {
        "attempts": written,
        "selected": accepted[0] if accepted and error is None else None,
        "assessed": None,
        "baselines": (),
        "opinion": None,
        "suspected": False,
    }
    return ReappraisalRow(**_settled(seq, error) | facts | changes)


def response(seq: int, *z: float, error: ItemError | None = None, **changes: Any) -> ScoringRow:
    """A scored text with the members' z."""
    facts: dict[str, Any] = {"system": None, "assessed": scored(z) if z else None, "suspected": False}
    return ScoringRow(**_settled(seq, error) | facts | changes)
