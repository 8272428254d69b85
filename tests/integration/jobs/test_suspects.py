"""Deaths: an innocent item is heard in the end, a guilty one fails alone, and nothing is asked without end."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from embedded import models
from services.foundation.database import transaction
from services.foundation.fleet import FleetModel
from services.foundation.identifiers import new_id
from services.jobs.cancel import cancel
from services.jobs.claim import Claim, claim
from services.jobs.deaths import GUILTY, SUSPECT, InFlight, condemned, isolate, tell_of_death
from services.jobs.end import lock_job
from services.jobs.execute import hear_chunk
from services.jobs.hear import Hear
from services.jobs.lease import disown
from services.jobs.record import Recorder
from services.jobs.rescue import expire_overdue, rescue_lapsed
from services.jobs.results import results_page
from services.judging.judge import Judge
from services.judging.runtime import Call, Completion
from services.vocabulary import DeathCause, Outcome
from tests.carriers import Everything, session
from tests.factories import MODEL, make_tenant, queue_job
from tests.hearings import a_worker, heard, taken
from tests.invariants import check_ended_job
from tests.stages import FLEET, an_epoch, score, settle, write
from workers.runtime.tokenizer import load_tokenizer, vocabulary_size

URL = "http://assizes.test"
ITEMS = 6


def rows(engine: Engine, statement: str, **values: object) -> list[dict[str, Any]]:
    with transaction(engine) as connection:
        return [dict(row) for row in connection.execute(text(statement), values).mappings()]


def chunks(engine: Engine) -> list[tuple[Any, ...]]:
    """Part, range, state, whether alone, deaths and verdicts of the only job's chunks."""
    found = rows(engine, "SELECT * FROM chunk ORDER BY first_seq")
    names = ("part", "first_seq", "end_seq", "state", "alone", "deaths", "succeeded")
    return [tuple(row[name] for name in names) for row in found]


def die(engine: Engine, held: Claim) -> None:
    """The worker that holds this is killed."""
    rows(
        engine, "UPDATE worker SET lease_until = now() - interval '1 s' WHERE id = :id RETURNING id", id=held.worker_id
    )
    assert rescue_lapsed(engine, URL) == [held.model]


def next_of(engine: Engine, model: str = MODEL, **how: bool) -> Claim | None:
    """What a new worker gets, which hears nothing else or as `how` says."""
    return claim(engine, a_worker(engine, model), model, **how)


def take_apart(engine: Engine, model: str = MODEL) -> None:
    """Have the model's next chunk die as often as it takes."""
    for _ in range(SUSPECT + 1):
        die(engine, taken(engine, a_worker(engine, model), model))


def test_a_chunk_that_was_there_at_two_deaths_runs_alone_and_is_taken_apart_when_it_dies_then(engine: Engine) -> None:
    queue_job(engine, make_tenant(engine), ITEMS)
    held = taken(engine, a_worker(engine))
    Recorder(engine, held, URL).flush(heard(held, [0, 4]))
    die(engine, held)
    assert chunks(engine) == [(0, 0, ITEMS, "queued", False, 1, 2)]
    die(engine, taken(engine, a_worker(engine)))
    assert chunks(engine) == [(0, 0, ITEMS, "queued", True, 0, 2)]
    die(engine, taken(engine, a_worker(engine)))
    verdicts = [1, 0, 0, 0, 1, 0]
    assert chunks(engine) == [(seq, seq, seq + 1, "queued", True, 0, verdicts[seq]) for seq in range(ITEMS)]
    evidence = rows(engine, "SELECT part, fence, alone, cause FROM death ORDER BY fence")
    assert evidence == [{"part": 0, "fence": fence, "alone": fence == 3, "cause": "worker"} for fence in (1, 2, 3)]


def test_suspects_run_alone(engine: Engine) -> None:
    tenant = make_tenant(engine)
    other = queue_job(engine, tenant, 1, priority="interactive")
    suspect = queue_job(engine, tenant, 2)
    rows(engine, "UPDATE chunk SET alone = true WHERE job_id = :job_id RETURNING 1", job_id=suspect)
    assert next_of(engine, beside=True) is None
    first = next_of(engine)
    assert first is not None
    assert (first.job_id, first.alone) == (suspect, True)
    assert rows(engine, "SELECT served FROM share WHERE priority = :p", p=int(first.priority)) == [{"served": 4}]
    held = next_of(engine, beside=True)
    assert held is not None
    assert (held.job_id, held.alone) == (other, False)


def test_where_suspects_do_not_come_first_they_come_when_there_is_nothing_else(engine: Engine) -> None:
    tenant = make_tenant(engine)
    suspect, other = queue_job(engine, tenant, 1), queue_job(engine, tenant, 1)
    rows(engine, "UPDATE chunk SET alone = true WHERE job_id = :job_id RETURNING 1", job_id=suspect)
    got = [next_of(engine, suspects_first=False, beside=beside) for beside in (True, True, False)]
    assert [held and held.job_id for held in got] == [other, None, suspect]


def test_alone_is_alone_among_all_that_share_a_runtime(engine: Engine) -> None:
    tenant = make_tenant(engine)
    other, suspect = queue_job(engine, tenant, 1), queue_job(engine, tenant, 1)
    first = next_of(engine, shared=True)
    assert first is not None
    rows(engine, "UPDATE chunk SET alone = true WHERE job_id = :job_id RETURNING 1", job_id=suspect)
    assert next_of(engine, shared=True) is None
    Recorder(engine, first, URL).release(heard(first, []))
    alone = next_of(engine, shared=True)
    assert alone is not None
    assert (alone.job_id, first.job_id) == (suspect, other)
    assert next_of(engine, shared=True) is None
    Recorder(engine, alone, URL).end(heard(alone, [0]))
    assert next_of(engine, shared=True) is not None


def test_only_the_item_that_kills_is_condemned(engine: Engine, judge: Judge) -> None:
    job_id = queue_job(engine, make_tenant(engine), ITEMS)
    deaths = 0
    while held := next_of(engine):
        kills = held.first_seq <= 3 < held.end_seq and not condemned(held)
        if kills:
            deaths += 1
            die(engine, held)
        else:
            hear_chunk(session(engine, held, judge, Everything()))
    assert deaths == SUSPECT + 1 + GUILTY
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["succeeded"], job["failed"]) == ("completed_with_errors", ITEMS - 1, 1)
    assert rows(engine, "SELECT seq, error_code FROM verdict WHERE status = 'failed'") == [
        {"seq": 3, "error_code": "poisoned"}
    ]
    (told,) = {row["error_message"] for row in rows(engine, "SELECT error_message FROM trace WHERE seq = 3")}
    assert told.count("worker of worker") == GUILTY
    assert rows(engine, "SELECT 1 FROM trace WHERE seq = 3 AND (sent_at IS NOT NULL OR prompt IS NOT NULL)") == []


class Fatal(Everything):
    """A carrier by which the work at item 3 dies."""

    def _completion(self, call: Call) -> Completion:
        if call.rid.split("-")[-2] == "3":
            raise ZeroDivisionError
        return super()._completion(call)


def test_work_that_dies_of_an_error_of_ours_comes_to_an_end(engine: Engine, judge: Judge) -> None:
    job_id = queue_job(engine, make_tenant(engine), ITEMS)
    while held := next_of(engine):
        try:
            hear_chunk(session(engine, held, judge, Fatal()))
        except ZeroDivisionError:
            assert held.first_seq <= 3 < held.end_seq
    job = check_ended_job(engine, job_id)
    assert (job["succeeded"], job["failed"]) == (ITEMS - 1, 1)
    causes = rows(engine, "SELECT cause, count(*) AS n FROM death GROUP BY cause")
    assert causes == [{"cause": "error", "n": SUSPECT + 1 + GUILTY}]


def tell(engine: Engine, held: Claim, job_id: UUID, cause: DeathCause = DeathCause.RUNTIME) -> None:
    with transaction(engine) as connection:
        lock_job(connection, job_id)
        tell_of_death(connection, InFlight(held.claim_key, held.alone), cause, held.worker_id, new_id())
        isolate(connection, held.key)


def test_a_death_that_two_tell_of_counts_once(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), ITEMS)
    held = taken(engine, a_worker(engine))
    tell(engine, held, job_id)
    die(engine, held)
    assert chunks(engine) == [(0, 0, ITEMS, "queued", False, 1, 0)]


def test_a_chunk_that_another_has_by_now_is_suspected_when_that_one_gives_it_up(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 2)
    first = taken(engine, a_worker(engine))
    die(engine, first)
    second = taken(engine, a_worker(engine))
    Recorder(engine, second, URL).release(heard(second, []))  # its runtime is away, and has died, as is known later
    third = taken(engine, a_worker(engine))
    tell(engine, second, job_id)
    assert chunks(engine) == [(0, 0, 2, "running", False, 2, 0)]
    Recorder(engine, third, URL).release(heard(third, [0]))
    assert chunks(engine) == [(0, 0, 2, "queued", True, 0, 1)]


def test_a_chunk_that_has_ended_was_not_to_blame(engine: Engine) -> None:
    job_id = queue_job(engine, make_tenant(engine), 1)
    held = taken(engine, a_worker(engine))
    Recorder(engine, held, URL).end(heard(held, [0]))
    tell(engine, held, job_id)
    assert rows(engine, "SELECT 1 FROM death") == []
    check_ended_job(engine, job_id)


@pytest.mark.parametrize(
    "give_up",
    [
        lambda engine, held: disown(engine, held.worker_id, held.claim_key),
        lambda engine, held: Recorder(engine, held, URL).release(heard(held, [])),
    ],
    ids=["disowned", "released"],
)
def test_what_is_given_up_unharmed_dies_of_nothing(engine: Engine, give_up: Callable[[Engine, Claim], None]) -> None:
    queue_job(engine, make_tenant(engine), ITEMS)
    for _ in range(SUSPECT + 1):
        give_up(engine, taken(engine, a_worker(engine)))
        rescue_lapsed(engine, URL)
    assert chunks(engine) == [(0, 0, ITEMS, "queued", False, 0, 0)]


def condemn(engine: Engine, model: str, judge: Judge, epoch_id: UUID | None = None) -> None:
    """The model's next chunk is one item that was alone at too many deaths."""
    rows(engine, "UPDATE chunk SET alone = true, deaths = :deaths WHERE model = :model RETURNING 1",
         deaths=GUILTY, model=model)  # fmt: skip
    held = next_of(engine, model)
    assert held is not None
    hear_chunk(session(engine, held, judge, Everything(), epoch_id=epoch_id))


def asked_as(name: str, protocol: str) -> Judge:
    """The scripted runtime's model as another one of the fleet."""
    weights = str(models.make("scripted"))
    model = FleetModel(name=name, protocol=protocol, weights=weights, context_length=8192)
    tokenizer = load_tokenizer(weights)
    return Judge.of(model, tokenizer, vocabulary_size(tokenizer, weights))


def test_of_a_panel_the_others_still_judge(engine: Engine, judge: Judge) -> None:
    job_id = queue_job(engine, make_tenant(engine), 1, judges=[MODEL, "other"])
    condemn(engine, MODEL, judge)
    held = next_of(engine, "other")
    assert held is not None
    hear_chunk(session(engine, held, asked_as("other", "sdrm"), Everything()))
    assert settle(engine) == 1
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["calls"]) == ("completed", 2)


@pytest.mark.parametrize(("model", "committee"), [("writer", "within"), ("a", "within"), ("a", "anchored")])
def test_what_cannot_be_written_or_scored_for_it_fails_as_poisoned(engine: Engine, model: str, committee: str) -> None:
    scenario = {"custom_id": "s", "scenario": "Something happened."}
    options = {"candidates": 2, "committee": committee}
    job_id = queue_job(
        engine, make_tenant(engine), [scenario], fleet=FLEET, kind="reappraisal", model="writer", options=options
    )
    if model == "writer":
        condemn(engine, "writer", asked_as("writer", "reappraisal"))
        for member in ("a", "b"):
            score(engine, member, [])
    else:
        write(engine, Outcome.ACCEPTED, Outcome.ACCEPTED)
        epochs: dict[str, UUID | None] = {"a": None, "b": None}
        if committee == "anchored":
            epochs = {member: an_epoch(engine, member, job_id, [float(at) for at in range(40)]) for member in epochs}
        condemn(engine, "a", asked_as("a", "reward"), epochs["a"])
        score(engine, "b", [1.0, 2.0], epochs["b"])
    settle(engine)
    job = check_ended_job(engine, job_id, calls=False)
    assert (job["status"], job["failed"]) == ("failed", 1)
    assert rows(engine, "SELECT error_code FROM verdict") == [{"error_code": "poisoned"}]


def test_a_condemned_item_at_which_even_that_fails_ends_all_the_same(
    engine: Engine, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Hear, "close", broken)
    job_id = queue_job(engine, make_tenant(engine), 1)
    with pytest.raises(ZeroDivisionError):
        condemn(engine, MODEL, judge)
    ended = rows(engine, "SELECT status, failed FROM job WHERE id = :job_id", job_id=job_id)
    assert ended == [{"status": "failed", "failed": 1}]  # without an opinion
    assert rows(engine, "SELECT error_code FROM verdict") == [{"error_code": "poisoned"}]


def test_where_everything_dies_no_more_than_two_items_pay(engine: Engine) -> None:
    """The runtime is at fault: no item is charged again before something else of the model was finished."""
    tenant = make_tenant(engine)
    jobs = [queue_job(engine, tenant, 1) for _ in range(4)]
    rows(engine, "UPDATE chunk SET alone = true RETURNING 1")
    for _ in range(GUILTY):
        for job_id in jobs[:3]:
            rows(engine, "UPDATE chunk SET alone = (job_id = :job_id) RETURNING 1", job_id=job_id)
            die(engine, taken(engine, a_worker(engine)))
    charged = rows(engine, "SELECT deaths FROM chunk ORDER BY job_id")
    assert [row["deaths"] for row in charged] == [GUILTY, GUILTY, 0, 0]
    rows(engine, "UPDATE chunk SET alone = (job_id = :job_id) RETURNING 1", job_id=jobs[2])
    good = next_of(engine, suspects_first=False)
    assert good is not None
    Recorder(engine, good, URL).end(heard(good, [0]))
    die(engine, taken(engine, a_worker(engine)))
    assert rows(engine, "SELECT deaths FROM chunk WHERE job_id = :job_id", job_id=jobs[2]) == [{"deaths": 1}]


@pytest.mark.parametrize("then", ["heard", "cancelled", "expired"])
def test_a_panels_chunk_in_parts_is_joined_cancelled_or_expires_like_any_other(
    engine: Engine, judge: Judge, then: str
) -> None:
    tenant = make_tenant(engine)
    job_id = queue_job(engine, tenant, ITEMS, judges=[MODEL, "other"])
    take_apart(engine)
    first = next_of(engine)
    assert first is not None
    hear_chunk(session(engine, first, judge, Everything()))
    if then == "cancelled":
        with transaction(engine) as connection:
            cancel(connection, tenant, job_id, URL)
    elif then == "expired":
        rows(engine, "UPDATE job SET deadline = now() RETURNING 1")
        expire_overdue(engine, URL)
    else:
        for model, asked in ((MODEL, judge), ("other", asked_as("other", "sdrm"))):
            while held := next_of(engine, model):
                hear_chunk(session(engine, held, asked, Everything()))
    settle(engine)
    job = check_ended_job(engine, job_id)
    counts = {"heard": (ITEMS, 0, 0), "cancelled": (0, ITEMS, 0), "expired": (1, 0, ITEMS - 1)}[then]
    assert (job["succeeded"], job["cancelled"], job["expired"]) == counts
    with transaction(engine) as connection:
        lines = results_page(connection, tenant, job_id, 100).lines
    assert sorted(json.loads(line)["seq"] for line in lines) == list(range(ITEMS))
