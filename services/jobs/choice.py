"""A committee's word on an item: its stored scores put together, and what follows of them.

Guarantee: it follows from stored rows alone, so whoever works it out comes to the same. A score that one member could
not give, or has not given yet, is never made up: its text is out of the choice, and says whose score it lacks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, text

from services.jobs.committees import scale_of
from services.judging.opinion import PRECEDENCE
from services.reappraisal.anchors import FEWEST
from services.reappraisal.committee import Assessment, Rule, assess, choose, ensemble
from services.vocabulary import ItemError, Outcome

RANGE = "job_id = :job_id AND seq >= :first_seq AND seq < :end_seq"
SCORES = text(f"SELECT * FROM score WHERE {RANGE} ORDER BY seq, model")
ANCHORS = text("SELECT epoch_id, scale, scores FROM anchor_scores WHERE epoch_id = ANY(:epochs)")


@dataclass(frozen=True, slots=True)
class Choice:
    """What a committee, or without one the gate, makes of an item's texts.

    `pool` are the texts that it chose among, by their places among all that were written; `texts` what it makes of each
    of them (`services.reappraisal.committee.Assessment`). By model, in the order of the pool: `outcomes` are what the
    texts came to, `values` its raw scores, `samples` how many valid ones of how many asked these rest on; `epochs` are
    the starts of the runtimes. `anchors` is how many of them every member scored, None where none are used. `absent`
    are members whose models have not all scored: by the deadline, they were not there. `flags` are those of what was
    scored. `error` says why nothing is selected although all were there.
    """

    selected: int | None
    committee: str | None
    pool: Sequence[int]
    texts: Sequence[Mapping[str, Any]] = ()
    outcomes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    samples: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    epochs: Mapping[str, str] = field(default_factory=dict)
    anchors: int | None = None
    absent: Sequence[str] = ()
    flags: Sequence[str] = ()
    error: Mapping[str, str] | None = None

    def body(self) -> dict[str, Any]:
        """The choice as it is stored, beside `selected`."""
        return {name: value for name, value in asdict(self).items() if name != "selected"}


class CommitteeScores:
    """The scores of a chunk's items, by item and model, and the anchors' in the same epochs."""

    def __init__(
        self,
        committee: Mapping[str, Any],
        rows: Mapping[int, Mapping[str, RowMapping]],
        anchors: Mapping[tuple[UUID, str], Sequence[float | None]],
    ) -> None:
        self.name: str = committee["name"]
        self.rows = rows
        self._committee = committee
        self._anchors = anchors
        self._rule = Rule(committee["weights"], committee["normalise"])

    @classmethod
    def load(cls, connection: Connection, chunk: Mapping[str, Any], committee: Mapping[str, Any]) -> "CommitteeScores":
        """Read those of a chunk's items."""
        found = connection.execute(SCORES, chunk).mappings().all()
        rows = {seq: {row["model"]: row for row in of_item} for seq, of_item in groupby(found, lambda row: row["seq"])}
        epochs = {"epochs": list({row["epoch_id"] for row in found})}
        anchors = {(row.epoch_id, row.scale): row.scores for row in connection.execute(ANCHORS, epochs)}
        return cls(committee, rows, anchors)

    def of(self, seq: int) -> Iterable[RowMapping]:
        """The rows of an item."""
        return self.rows.get(seq, {}).values()

    def choice(self, seq: int, pool: Sequence[int]) -> Choice:
        """What the committee makes of an item's pool of texts."""
        rows, members = self.rows.get(seq, {}), self._committee["members"]
        told: dict[str, Any] = {
            "committee": self.name,
            "pool": pool,
            "outcomes": {model: row["outcomes"] for model, row in rows.items()},
            "values": {model: row["scores"] for model, row in rows.items()},
            "samples": {model: list(zip(row["valid"], row["asked"], strict=True)) for model, row in rows.items()},
            "flags": sorted({flag for row in rows.values() for flag in row["flags"]}),
            "epochs": {model: str(row["epoch_id"]) for model, row in rows.items()},
        }
        absent = [member for member, models in members.items() if not rows.keys() >= set(models)]
        try:
            raw: dict[str, list[float | None]] = {
                member: [None] * len(pool) if member in absent else ensemble([rows[one]["scores"] for one in models])
                for member, models in members.items()
            }
            if absent:
                return Choice(None, **told, texts=_unassessed(pool, raw), absent=absent)
            anchors = None if self._committee["anchors"] is None else self._anchors_of(rows)
            assessments = assess(raw, self._rule, anchors)
        except ValueError as fault:
            return Choice(None, **told, error=failure(ItemError.RUNTIME_ERROR, str(fault)))
        told["texts"] = [{"text": place, **asdict(one)} for place, one in zip(pool, assessments, strict=True)]
        told["anchors"] = None if anchors is None else len(next(iter(anchors.values())))
        best = _best(assessments)
        return Choice(None, **told, error=_unscored(told)) if best is None else Choice(pool[best], **told)

    def _anchors_of(self, rows: Mapping[str, RowMapping]) -> dict[str, list[float]]:
        """Each member's scores of the anchors that all members scored. Raises ValueError where these are too few."""
        measured = {
            member: ensemble([self._measured(rows[model]) for model in models])
            for member, models in self._committee["members"].items()
        }
        for member, scores in measured.items():
            if (known := len(scores) - scores.count(None)) < FEWEST:
                raise ValueError(f"{member} scored {known} of the anchors, and {FEWEST} is the fewest")
        common = [scores for scores in zip(*measured.values(), strict=True) if None not in scores]
        if len(common) < FEWEST:
            raise ValueError(f"the members together scored {len(common)} of the anchors, and {FEWEST} is the fewest")
        return {member: [scores[place] for scores in common] for place, member in enumerate(measured)}

    def _measured(self, row: RowMapping) -> Sequence[float | None]:
        scale = scale_of(self._committee, row["model"])
        measured = None if scale is None else self._anchors.get((row["epoch_id"], scale))
        if measured is None:
            raise ValueError(f"the anchors of {row['model']} were not measured in the epoch of its scores")
        return measured


def failure(code: ItemError, message: str) -> dict[str, str]:
    """An error as it is stored."""
    return {"code": code, "message": message}


def _best(assessments: Sequence[Assessment]) -> int | None:
    """The place of the best text; of a group of one, which nothing can be compared with, the only one."""
    complete = [place for place, one in enumerate(assessments) if not one.missing]
    return complete[0] if len(complete) == 1 else choose(assessments)


def _unassessed(pool: Sequence[int], raw: Mapping[str, Sequence[float | None]]) -> list[dict[str, Any]]:
    """The texts with what scores there are."""
    nothing = dict.fromkeys(("mean", "std", "score"))
    texts = []
    for index, place in enumerate(pool):
        scores = {member: values[index] for member, values in raw.items()}
        missing = [member for member, score in scores.items() if score is None]
        texts.append({"text": place, "raw": scores, "z": dict.fromkeys(scores), **nothing, "missing": missing})
    return texts


def _unscored(told: Mapping[str, Any]) -> dict[str, str]:
    """Why no text has a score."""
    outcomes = {Outcome(outcome) for of_model in told["outcomes"].values() for outcome in of_model}
    code = next((error for error, causes in PRECEDENCE if causes & outcomes), ItemError.RUNTIME_ERROR)
    missing = ", ".join(sorted({member for one in told["texts"] for member in one["missing"]}))
    return failure(code, f"no text was scored by every member of the committee: {missing} did not score them all")
