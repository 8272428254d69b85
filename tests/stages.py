"""Workers that need no runtimes for the stages of a reappraisal: they write what a real one would have come to."""

import json
from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.foundation.fleet import Fleet
from services.foundation.identifiers import new_id
from services.jobs.choose import choose_next
from services.jobs.claim import Claim
from services.jobs.committees import scale_of
from services.jobs.conclude import conclude_next
from services.jobs.lease import Epoch, open_epoch
from services.jobs.measure import STORE
from services.jobs.record import Batch, Recorder
from services.jobs.rows import opinion_row, scores_row, written_row
from services.judging.proceeding import Spent
from services.judging.scoring import Scores
from services.judging.writing import Text, Written
from services.vocabulary import Flag, Outcome, Winner
from tests.hearings import a_worker, opinion, taken

URL = "http://assizes.test"
NOTHING = Spent(0, 0, 0, 0)  # these tests make no calls
SUSPECTED = frozenset({Flag.INJECTION_SUSPECTED})
ACCEPTED, TOO_LONG, FAILED = Outcome.ACCEPTED, Outcome.TOO_LONG, Outcome.FAILED
FLEET = Fleet.model_validate(
    {
        "models": {
            name: {"name": name, "protocol": protocol, "weights": "w"}
            for name, protocol in {"writer": "reappraisal", "a": "reward", "b": "reward", "judge": "sdrm"}.items()
        },
        "committees": {
            "within": {"name": "within", "members": ["a", "b"], "normalise": "group"},
            "anchored": {"name": "anchored", "members": ["a", "b"]},
        },
    }
)


def hold(engine: Engine, model: str) -> Claim:
    return taken(engine, a_worker(engine, model), model)


def write(engine: Engine, *outcomes: Outcome) -> None:
    """Write the next chunk: each item's texts come to these outcomes."""
    held, batch = hold(engine, "writer"), Batch()
    for seq in range(held.first_seq, held.end_seq):
        texts = [Text(place, 0, outcome, f"text {place}", 1) for place, outcome in enumerate(outcomes)]
        batch.reappraisals.append(written_row(held.job_id, seq, Written(tuple(texts), frozenset(), NOTHING)))
    Recorder(engine, held, URL).end(batch)


def score(engine: Engine, model: str, values: Sequence[float | None], epoch_id: UUID | None = None) -> None:
    """Score the next chunk."""
    held, batch = hold(engine, model), Batch()
    outcomes = tuple(Outcome.DECIDED if value is not None else FAILED for value in values)
    for seq in range(held.first_seq, held.end_seq):
        valid = tuple(int(value is not None) for value in values)
        scores = Scores(tuple(values), outcomes, valid, (1,) * len(values), SUSPECTED, NOTHING)
        batch.scores.append(scores_row(held.job_id, seq, model, epoch_id or new_id(), scores))
    Recorder(engine, held, URL).end(batch)


def compare(engine: Engine, says: Winner) -> None:
    held, batch = hold(engine, "judge"), Batch()
    for seq in range(held.first_seq, held.end_seq):
        batch.opinions.append(opinion_row(held.job_id, seq, opinion("judge", says)))
    Recorder(engine, held, URL).end(batch)


def settle(engine: Engine) -> int:
    """Choose and conclude what can be. Returns how many chunks that were."""
    settled = 0
    while choose_next(engine, URL) or conclude_next(engine, URL):
        settled += 1
    return settled


def an_epoch(engine: Engine, model: str, job_id: UUID, anchors: Sequence[float | None]) -> UUID:
    """A start of the model's runtime in which the job's anchors were measured so."""
    epoch_id = new_id()
    nothing = dict.fromkeys(("revision", "weights_hash", "template_hash", "runtime_version", "launch_flags"))
    worker_id = a_worker(engine, model)
    open_epoch(engine, Epoch(id=epoch_id, worker_id=worker_id, model=model, weights="w", server_info={}, **nothing))  # type: ignore[arg-type] # all may be None
    with transaction(engine) as connection:
        settings = connection.scalar(text("SELECT settings FROM job WHERE id = :id"), {"id": job_id})
        scale = scale_of(json.loads(settings)["committee"], model)
        connection.execute(STORE, {"epoch_id": epoch_id, "scale": scale, "scores": json.dumps(list(anchors))})
    return epoch_id
