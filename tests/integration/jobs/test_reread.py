"""Reading stored traces again: what counts, what is left out, what is refused, and what the new job keeps."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from services.contract.jobs import RereadRequest
from services.contract.options import JobSettings, RereadOptions
from services.foundation.database import transaction
from services.foundation.errors import Invalid
from services.foundation.fleet import Fleet, FleetModel
from services.foundation.identifiers import new_id
from services.jobs.answer import Answer
from services.jobs.cancel import cancel
from services.jobs.claim import Claim, claim
from services.jobs.conclude import conclude_next
from services.jobs.delete import delete, remove_next
from services.jobs.hear import comparison, hearing_options, unheard
from services.jobs.options import family_of
from services.jobs.record import Batch, Recorder
from services.jobs.reread import reread_next, submit_reread
from services.jobs.results import stream_results
from services.jobs.rows import opinion_row, trace_row, verdict_row
from services.judging.hearing import Hearing
from services.judging.judge import GREEDY, Question
from services.judging.panel import single
from services.judging.proceeding import CallKey
from services.judging.prompt import Prompt
from services.judging.runtime import Completion
from services.vocabulary import FinishReason
from tests.factories import make_tenant, queue_job
from tests.hearings import a_worker
from tests.invariants import check_ended_job

URL = "http://assizes.test"
FIRST, SECOND, GENRM = "first", "second", "genrm"
FLEET = Fleet(
    models={
        name: FleetModel(name=name, protocol=family, weights="nowhere")
        for name, family in ((FIRST, "sdrm"), (SECOND, "sdrm"), (GENRM, "genrm"))
    }
)
SCORES = {"score_1": 5, "score_2": 1, "ranking": 1}
UNREADABLE = "Hard to say."
Says = Callable[[int, CallKey], str]


@pytest.fixture
def tenant(engine: Engine) -> UUID:
    """A tenant."""
    return make_tenant(engine)


def prefers_a(seq: int, key: CallKey) -> str:
    """The item's A, whatever the order."""
    return f"<verdict>{'B' if key.order.swapped else 'A'}</verdict>"


def says_nothing(seq: int, key: CallKey) -> str:
    """A text without a verdict, so that one is forced."""
    return UNREADABLE


def completion(text: str, key: CallKey) -> Completion:
    """The text; of a forced call the label that says the item's A, by .8."""
    if not key.forced:
        return Completion(text, FinishReason.STOP, 10, 0, 5, latency_s=1.0)
    wins, loses = ("B", "A") if key.order.swapped else ("A", "B")
    logprobs = ((wins, -0.2231435513), (loses, -1.6094379124))
    return Completion(wins, FinishReason.STOP, 10, 0, 1, logprobs, latency_s=1.0)


def hear(engine: Engine, judge: str, says: Says, *, version: str = "", keep_prompt: bool = True) -> int:
    """Hear all of the judge's chunks, as a worker does. Returns how many. `version`: of what opens a forced label."""
    worker, heard = a_worker(engine, judge), 0
    while (held := claim(engine, worker, judge)) is not None:
        Recorder(engine, held, URL).end(_heard(engine, held, says, version, keep_prompt))
        heard += 1
    return heard


def _heard(engine: Engine, held: Claim, says: Says, version: str, keep_prompt: bool) -> Batch:
    family, settings, batch = family_of(FLEET, held.model), json.loads(held.settings)["judges"][held.model], Batch()
    with transaction(engine) as connection:
        items = unheard(connection, held)
    for row in items:
        compared = comparison(json.loads(row["input"]))
        hearing = Hearing(held.model, json.loads(row["custom_id"]), compared, family, hearing_options(settings))
        while opened := hearing.open_calls():
            key = opened[0]
            written = version + hearing.written_before(key) if key.forced else ""
            prompt = f"{row['seq']}, {key.first.number}: \ud800{written}"
            came = completion(says(row["seq"], key), key)
            said = hearing.read(key, came)
            hearing.record(key, said)
            answer = Answer("", came, datetime.now(UTC), 1.0)
            question, seating = Question(Prompt([], prompt), GREEDY, ()), hearing.seating(key)
            batch.traces.append(
                trace_row(
                    *(held, row["seq"], key, seating, family, question, GREEDY, said, answer, new_id()),
                    keep_prompt=keep_prompt,
                )
            )
            batch.calls += 1
            batch.prompt_tokens += 10
            batch.completion_tokens += came.completion_tokens or 0
        opinion = hearing.opinion()
        batch.opinions.append(opinion_row(held.job_id, row["seq"], opinion))
        if held.settles:
            batch.verdicts.append(verdict_row(held.job_id, row["seq"], single(opinion)))
    return batch


def queue(engine: Engine, tenant: UUID, items: int, *judges: str, **options: Any) -> UUID:
    return queue_job(engine, tenant, items, FLEET, judges=judges, options=options)


def submitted(engine: Engine, tenant: UUID, source: UUID, **options: Any) -> UUID:
    request = RereadRequest(options=RereadOptions(**options))
    return submit_reread(engine, tenant, source, request, "{}", FLEET).job_id


def read_all(engine: Engine) -> int:
    """Settle what is to be read again. Returns how many chunks that were."""
    chunks = 0
    while reread_next(engine, FLEET, URL):
        chunks += 1
    return chunks


def reread(engine: Engine, tenant: UUID, source: UUID, **options: Any) -> UUID:
    """Read a job again, to the end."""
    again = submitted(engine, tenant, source, **options)
    assert read_all(engine)
    check_ended_job(engine, again)
    return again


def refused(engine: Engine, tenant: UUID, source: UUID, **options: Any) -> list[str]:
    """Where the options are wrong."""
    with pytest.raises(Invalid) as caught:
        submitted(engine, tenant, source, **options)
    assert rows(engine, "SELECT 1 FROM job WHERE reread_of IS NOT NULL") == []
    return [fault.pointer for fault in caught.value.faults]


def verdicts(engine: Engine, tenant: UUID, job_id: UUID) -> list[Any]:
    lines = [json.loads(line) for page in stream_results(engine, tenant, job_id) for line in page]
    return [line["verdict"] for line in lines]


def opinions(engine: Engine, job_id: UUID) -> list[dict[str, Any]]:
    found = rows(engine, "SELECT body FROM opinion WHERE job_id = :job_id ORDER BY seq, judge", job_id=job_id)
    return [row["body"] for row in found]


def rows(engine: Engine, statement: str, **values: object) -> list[dict[str, Any]]:
    with transaction(engine) as connection:
        return [dict(row) for row in connection.execute(text(statement), values).mappings()]


def run(engine: Engine, statement: str, **values: object) -> None:
    with transaction(engine) as connection:
        connection.execute(text(statement), values)


def traces(engine: Engine, job_id: UUID) -> list[dict[str, Any]]:
    """The job's traces without what says whose they are."""
    found = rows(engine, "SELECT * FROM trace WHERE job_id = :job_id ORDER BY seq, judge, call", job_id=job_id)
    return [{name: row[name] for name in row.keys() - {"job_id", "day", "created_at"}} for row in found]


@pytest.mark.parametrize("keep_prompt", [True, False])
def test_the_same_options_come_to_the_same(engine: Engine, tenant: UUID, keep_prompt: bool) -> None:
    job_id = queue(engine, tenant, 3, FIRST, samples=2, early_stop="never")
    hear(engine, FIRST, says_nothing, keep_prompt=keep_prompt)
    again = reread(engine, tenant, job_id)
    assert [opinion["forced"] for opinion in opinions(engine, job_id)] == [4] * 3
    assert opinions(engine, again) == opinions(engine, job_id)
    assert verdicts(engine, tenant, again) == verdicts(engine, tenant, job_id)
    assert traces(engine, again) == traces(engine, job_id)


def test_a_chunk_has_as_many_items_as_when_it_was_heard(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 20, FIRST, SECOND, samples=8)
    again = submitted_after_cancel(engine, tenant, job_id)
    runs = "SELECT ordinal, first_seq, end_seq FROM chunk WHERE job_id = :job_id AND settles ORDER BY ordinal"
    laid_out = rows(engine, runs, job_id=again)
    assert [(row["first_seq"], row["end_seq"]) for row in laid_out] == [(0, 8), (8, 16), (16, 20)]
    assert laid_out == rows(engine, runs, job_id=job_id)


def submitted_after_cancel(engine: Engine, tenant: UUID, job_id: UUID) -> UUID:
    with transaction(engine) as connection:
        cancel(connection, tenant, job_id, URL)
    return submitted(engine, tenant, job_id)


@pytest.mark.parametrize("keep_prompt", [True, False])
def test_a_follow_up_that_another_version_asked_otherwise_does_not_count(
    engine: Engine, tenant: UUID, keep_prompt: bool
) -> None:
    job_id = queue(engine, tenant, 1, FIRST)
    hear(engine, FIRST, says_nothing, version="So: ", keep_prompt=keep_prompt)
    if not keep_prompt:  # then what it was asked behind shows in how the first call was read
        run(engine, """UPDATE trace SET reading = reading || '{"span": [0, 4]}' WHERE NOT forced""")
    again = reread(engine, tenant, job_id)
    (then,), (now,) = opinions(engine, job_id), opinions(engine, again)
    assert (then["winner"], then["forced"], then["invalid"]) == ("A", 2, 0)
    assert (now["reason"], now["forced"], now["invalid"]) == ("unparseable", 0, 2)


def test_calls_that_do_not_count_are_kept_as_they_were_read(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 2, FIRST)
    hear(engine, FIRST, says_nothing)
    again = reread(engine, tenant, job_id, forced_verdict=False)
    assert [opinion["invalid"] for opinion in opinions(engine, again)] == [2, 2]
    assert traces(engine, again) == traces(engine, job_id)
    thrice = reread(engine, tenant, again, forced_verdict=True)
    assert verdicts(engine, tenant, thrice) == verdicts(engine, tenant, job_id)


def test_stopped_hearings_stay_stopped(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 2, FIRST, samples=5)
    hear(engine, FIRST, prefers_a)
    again = reread(engine, tenant, job_id, tie_margin=0.0, decide="vote")
    first = verdicts(engine, tenant, job_id)
    assert [verdict["opinions"][0]["stopped"] for verdict in first] == ["certain"] * 2
    assert verdicts(engine, tenant, again) == first


@pytest.mark.parametrize(
    ("judge", "options"),
    [
        (FIRST, {"decide": "soft"}),
        (FIRST, {"on_conflict": "abstain"}),
        (FIRST, {"tie_margin": 0.2}),
        (GENRM, {"margin": "nvidia"}),
    ],
)
def test_what_decides_stays_where_hearing_stopped_early(
    engine: Engine, tenant: UUID, judge: str, options: dict[str, Any]
) -> None:
    def says(seq: int, key: CallKey) -> str:
        if judge == FIRST:
            return prefers_a(seq, key)
        scores = {"score_1": 1, "score_2": 5, "ranking": 6} if key.order.swapped else SCORES
        return f"So.\n</think>\n{json.dumps(scores)}"

    whole = queue(engine, tenant, 1, judge, samples=5, early_stop="never")
    stopped = queue(engine, tenant, 2, judge, samples=5)
    hear(engine, judge, says)
    (option,) = options
    assert refused(engine, tenant, stopped, **options) == [f"/options/{option}"]
    reread(engine, tenant, whole, **options)


def panel(engine: Engine, tenant: UUID, job_id: UUID) -> dict[str, Any]:
    (row,) = rows(engine, "SELECT settings FROM job WHERE id = :job_id", job_id=job_id)
    settings = JobSettings.model_validate_json(row["settings"]).panel
    assert settings is not None
    return settings.model_dump()


def heard_panel(engine: Engine, tenant: UUID, **options: Any) -> UUID:
    """A panel that does not agree."""
    job_id = queue(engine, tenant, 3, FIRST, SECOND, **options)
    hear(engine, FIRST, prefers_a)
    hear(engine, SECOND, lambda _, key: f"<verdict>{'A' if key.order.swapped else 'B'}</verdict>")
    while conclude_next(engine, URL):
        pass
    check_ended_job(engine, job_id)
    return job_id


def test_a_panel_is_read_again_with_what_is_left_out_as_it_was(engine: Engine, tenant: UUID) -> None:
    job_id = heard_panel(engine, tenant, panel={"decide": "mean", "weights": {FIRST: 3.0}})
    again = reread(engine, tenant, job_id)
    assert verdicts(engine, tenant, again) == verdicts(engine, tenant, job_id)
    assert [(verdict["winner"], verdict["p_a"]) for verdict in verdicts(engine, tenant, again)] == [("A", 0.75)] * 3
    wider = reread(engine, tenant, job_id, panel={"tie_margin": 0.3})
    assert panel(engine, tenant, wider) == {
        "decide": "mean",
        "weights": {FIRST: 3.0, SECOND: 1.0},
        "tie_margin": 0.3,
    }
    assert [verdict["winner"] for verdict in verdicts(engine, tenant, wider)] == ["tie"] * 3
    turned = reread(engine, tenant, wider, panel={"weights": {SECOND: 30.0}, "decide": "majority"})
    assert panel(engine, tenant, turned) == {
        "decide": "majority",
        "weights": {FIRST: 3.0, SECOND: 30.0},
        "tie_margin": 0.3,
    }
    assert [verdict["winner"] for verdict in verdicts(engine, tenant, turned)] == ["B"] * 3


def test_options_that_could_not_matter_are_refused_as_for_a_new_job(engine: Engine, tenant: UUID) -> None:
    alone, both = queue(engine, tenant, 1, FIRST, mode="direct"), heard_panel(engine, tenant)
    hear(engine, FIRST, prefers_a)
    assert refused(engine, tenant, alone, on_conflict="abstain") == ["/options/on_conflict"]
    assert refused(engine, tenant, alone, panel={"tie_margin": 0.1}) == ["/options/panel"]
    assert refused(engine, tenant, both, panel={"weights": {GENRM: 2.0}}) == [f"/options/panel/weights/{GENRM}"]
    assert refused(engine, tenant, both, decide="scores") == ["/options/decide"] * 2
    assert refused(engine, tenant, both, tie_margin=0.5) == ["/options/tie_margin"] * 2


def test_a_mean_cannot_be_had_of_hearings_that_stopped_early(engine: Engine, tenant: UUID) -> None:
    stopped, whole = heard_panel(engine, tenant, samples=5), heard_panel(engine, tenant, samples=5, early_stop="never")
    assert refused(engine, tenant, stopped, panel={"decide": "mean"}) == ["/options/panel/decide"]
    reread(engine, tenant, stopped, panel={"weights": {FIRST: 2.0}})
    reread(engine, tenant, whole, panel={"decide": "mean"})


def test_a_cancelled_panel_is_read_as_far_as_it_was_heard(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 3, FIRST, SECOND)
    hear(engine, FIRST, prefers_a)
    again = submitted_after_cancel(engine, tenant, job_id)
    assert read_all(engine) == 1
    assert check_ended_job(engine, again)["status"] == "completed"
    assert [(v["winner"], v["missing"]) for v in verdicts(engine, tenant, again)] == [("A", [SECOND])] * 3


def test_a_cancelled_reread_reads_nothing_more(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 40, FIRST)
    hear(engine, FIRST, prefers_a)
    again = submitted(engine, tenant, job_id)
    assert reread_next(engine, FLEET, URL)
    with transaction(engine) as connection:
        assert cancel(connection, tenant, again, URL)["status"] == "cancelled"
    assert read_all(engine) == 0
    job = check_ended_job(engine, again)
    assert (job["succeeded"], job["cancelled"]) == (32, 8)


def test_what_was_read_again_outlives_the_first_job(engine: Engine, tenant: UUID) -> None:
    job_id = queue(engine, tenant, 40, FIRST)
    hear(engine, FIRST, prefers_a)
    first, calls = verdicts(engine, tenant, job_id), traces(engine, job_id)
    whole = reread(engine, tenant, job_id)
    part = submitted(engine, tenant, job_id)
    assert reread_next(engine, FLEET, URL)
    with transaction(engine) as connection:
        delete(connection, tenant, job_id)
    assert read_all(engine) == 1
    run(engine, "UPDATE job SET deleted_at = deleted_at - interval '1 minute'")
    while remove_next(engine):
        pass
    assert (verdicts(engine, tenant, whole), traces(engine, whole)) == (first, calls)
    assert verdicts(engine, tenant, part) == first[:32] + [None] * 8
    assert rows(engine, "SELECT status, expired, reread_of FROM job WHERE id = :job_id", job_id=part) == [
        {"status": "expired", "expired": 8, "reread_of": None}
    ]
