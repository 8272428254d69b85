"""Measuring anchors: what a runtime makes of a committee's reference texts, once in each of its starts.

Guarantee: the scores of an epoch's anchors are all from that epoch, and are stored before any score that is put on
their scale. One thread of a worker measures while others that need the same scale wait. What a model does not score at
first it is asked again, `ATTEMPTS` times in all: one that judges in its own words may miss an answer.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.jobs.asking import WAIT, Asking, Line
from services.jobs.committees import kept_anchors, scale_of
from services.jobs.docket import Case
from services.jobs.score import scoring
from services.judging.runtime import RuntimeUnavailable
from services.vocabulary import Priority

log = structlog.get_logger(__name__)

ATTEMPTS = 3

STORE = text(
    """
    INSERT INTO anchor_scores (epoch_id, scale, scores) VALUES (:epoch_id, :scale, cast(:scores AS jsonb))
    ON CONFLICT DO NOTHING
    """
)


class Anchors:
    """What one epoch has been measured on. Shared by the threads of a worker."""

    def __init__(self, engine: Engine, epoch_id: UUID) -> None:
        self._engine = engine
        self._epoch_id = epoch_id
        self._scales: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._measured: set[str] = set()

    def measure(
        self, line: Line, committee: Mapping[str, Any], confirm: Callable[[], None] | None
    ) -> RuntimeUnavailable | None:
        """Have the anchors of a job's committee scored by its model `line.judge`, unless they have been.

        It may end without that: interrupted, or since the runtime is away or by `confirm` another one (see Session),
        which is then returned.
        """
        scale = scale_of(committee, line.judge.name)
        if scale is None or scale in self._measured:
            return None
        measuring = self._scales[scale]
        while not measuring.acquire(timeout=WAIT):
            if line.interrupted():
                return None
        try:
            return None if scale in self._measured else self._measure(line, committee, scale, confirm)
        finally:
            measuring.release()

    def _measure(
        self, line: Line, committee: Mapping[str, Any], scale: str, confirm: Callable[[], None] | None
    ) -> RuntimeUnavailable | None:
        with transaction(self._engine) as connection:
            anchors = kept_anchors(connection, committee["anchors"])
        scores: list[float | None] = [None] * len(anchors)
        for attempt in range(ATTEMPTS):
            left = [number for number, score in enumerate(scores) if score is None]
            cases = [Case(number, scoring(line.judge, committee, anchors[number])) for number in left]
            # ahead of all else: every chunk of this scale waits for them
            named = replace(line, name=f"{line.name}-anchors-{attempt}", priority=Priority.INTERACTIVE)
            asking = Asking(named, lambda *_: None, lambda: None)
            try:
                asking.work_off(cases)
            finally:
                asking.hang_up()
            if not all(case.proceeding.ended for case in cases):
                return asking.away
            for case in cases:
                (scores[case.seq],) = case.proceeding.scores().values
        if confirm is not None:
            try:
                confirm()
            except RuntimeUnavailable as away:
                return away
        self._store(scale, scores, line.judge.name)
        return None

    def _store(self, scale: str, scores: Sequence[float | None], model: str) -> None:
        if None in scores:
            log.error("anchors_without_score", model=model, without=scores.count(None), of=len(scores))
        with transaction(self._engine) as connection:
            stored = {"epoch_id": self._epoch_id, "scale": scale, "scores": json.dumps(scores, allow_nan=False)}
            connection.execute(STORE, stored)
        self._measured.add(scale)
