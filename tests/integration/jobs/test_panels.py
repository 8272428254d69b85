"""Panels: each judge is heard on its own, opinions are joined once, and no stop loses or repeats anything."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, RowMapping, text

from services.foundation.database import transaction
from services.foundation.errors import Fenced
from services.jobs import conclude, settle
from services.jobs.cancel import cancel
from services.jobs.claim import Claim
from services.jobs.conclude import conclude_next
from services.jobs.docket import heard_before
from services.jobs.hear import unheard
from services.jobs.queries import load_job
from services.jobs.record import Batch, Recorder
from services.jobs.rescue import expire_overdue, rescue_lapsed
from services.jobs.results import START, Cursor, one_result, results_page, stream_results
from services.vocabulary import Winner
from tests.factories import MODEL, make_tenant, queue_job
from tests.hearings import a_worker, heard, taken
from tests.invariants import check_ended_job

URL = "http://assizes.test"
FIRST, SECOND, THIRD = JUDGES = (MODEL, "other", "third")


@pytest.fixture
def tenant(engine: Engine) -> UUID:
    """A tenant."""
    return make_tenant(engine)


def hold(engine: Engine, judge: str) -> Claim:
    """Claim the judge's next chunk."""
    return taken(engine, a_worker(engine, judge), judge)


def hear(engine: Engine, judge: str, says: Winner = Winner.A) -> None:
    """Hear the judge's next chunk to its end."""
    held = hold(engine, judge)
    Recorder(engine, held, URL).end(heard(held, range(held.first_seq, held.end_seq), says=says))


def conclude_all(engine: Engine) -> int:
    """Join what can be joined. Returns how many chunks that were."""
    joined = 0
    while conclude_next(engine, URL):
        joined += 1
    return joined


def pass_deadline(engine: Engine, by: str = "0 s") -> int:
    """Let the deadline be past by so much, and look once. Returns how many jobs ended by that."""
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deadline = now() - cast(:by AS interval)"), {"by": by})
    return expire_overdue(engine, URL)


def stop(engine: Engine, tenant: UUID, job_id: UUID) -> str:
    with transaction(engine) as connection:
        status: str = cancel(connection, tenant, job_id, URL)["status"]
    return status


def shown(engine: Engine, tenant: UUID, job_id: UUID) -> dict[str, Any]:
    """The job as a caller sees it, its counts checked."""
    with transaction(engine) as connection:
        job: dict[str, Any] = json.loads(load_job(connection, tenant, job_id).as_json())
    counts = dict(job["counts"])
    assert counts.pop("total") == sum(counts.values())
    assert min(counts.values()) >= 0
    return job


def counts(engine: Engine, tenant: UUID, job_id: UUID) -> dict[str, int]:
    """The counts that are not 0, but for the total."""
    found = shown(engine, tenant, job_id)["counts"]
    return {name: number for name, number in found.items() if number and name != "total"}


def results(engine: Engine, tenant: UUID, job_id: UUID) -> list[dict[str, Any]]:
    return [json.loads(line) for page in stream_results(engine, tenant, job_id) for line in page]


def test_opinions_are_joined_once_all_are_there_and_not_before(engine: Engine, tenant: UUID) -> None:
    job_id = queue_job(engine, tenant, 40, judges=JUDGES)
    assert counts(engine, tenant, job_id) == {"queued": 40}
    hear(engine, FIRST)
    assert counts(engine, tenant, job_id) == {"queued": 8, "running": 32}
    hear(engine, SECOND, says=Winner.B)
    held = hold(engine, THIRD)
    recorder = Recorder(engine, held, URL)
    recorder.flush(heard(held, range(32)))
    assert conclude_all(engine) == 0
    assert results(engine, tenant, job_id) == []
    recorder.end(Batch())
    assert counts(engine, tenant, job_id) == {"queued": 8, "running": 32}
    assert conclude_all(engine) == 1
    assert counts(engine, tenant, job_id) == {"queued": 8, "succeeded": 32}
    for judge in JUDGES:
        hear(engine, judge)
    assert conclude_all(engine) == 1
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["succeeded"], job["calls"]) == ("completed", 40, 120)
    lines = results(engine, tenant, job_id)
    assert [line["seq"] for line in lines] == list(range(40))
    assert [opinion["judge"] for opinion in lines[0]["verdict"]["opinions"]] == sorted(JUDGES)
    assert lines[0]["usage"]["calls"] == 3
    split, united = lines[0]["verdict"], lines[39]["verdict"]
    assert (split["winner"], split["p_a"], split["disagreement"]) == ("A", pytest.approx(1.9 / 3), pytest.approx(2 / 3))
    assert (united["winner"], united["p_a"], united["disagreement"]) == ("A", pytest.approx(0.9), 0)
    assert "missing" not in united


def test_an_item_is_running_once_a_judge_has_begun_with_its_chunk(engine: Engine, tenant: UUID) -> None:
    job_id = queue_job(engine, tenant, 40, judges=JUDGES[:2])

    def standing() -> list[str]:
        with transaction(engine) as connection:
            both = [one_result(connection, tenant, job_id, custom_id) for custom_id in ("q0", "q39")]
        return [json.loads(line)["status"] for line in both]

    assert standing() == ["queued", "queued"]
    held = hold(engine, FIRST)
    assert (standing(), counts(engine, tenant, job_id)) == (["running", "queued"], {"queued": 8, "running": 32})
    Recorder(engine, held, URL).release(Batch())
    assert (standing(), counts(engine, tenant, job_id)) == (["queued", "queued"], {"queued": 40})
    hear(engine, FIRST)
    assert (standing(), counts(engine, tenant, job_id)) == (["running", "queued"], {"queued": 8, "running": 32})
    hear(engine, SECOND)
    assert (standing(), counts(engine, tenant, job_id)) == (["running", "queued"], {"queued": 8, "running": 32})
    conclude_all(engine)
    assert (standing(), counts(engine, tenant, job_id)) == (["succeeded", "queued"], {"queued": 8, "succeeded": 32})


def test_a_judge_goes_on_where_it_was_and_not_where_others_are(engine: Engine, tenant: UUID) -> None:
    job_id = queue_job(engine, tenant, 8, judges=JUDGES[:2])
    hear(engine, FIRST)
    lost = taken(engine, a_worker(engine, SECOND, lease=0.0), SECOND)
    Recorder(engine, lost, URL).flush(heard(lost, range(3)))
    assert rescue_lapsed(engine, URL) == [SECOND]
    again = hold(engine, SECOND)
    with transaction(engine) as connection:
        assert [row["seq"] for row in unheard(connection, again)] == list(range(3, 8))
        assert [row["seq"] for row in heard_before(connection, again)] == list(range(3))
    Recorder(engine, again, URL).end(heard(again, range(3, 8)))
    conclude_all(engine)
    assert check_ended_job(engine, job_id)["succeeded"] == 8


def test_what_is_there_at_the_deadline_is_concluded_without_the_judge_that_is_down(
    engine: Engine, tenant: UUID
) -> None:
    """Of four chunks one was heard by all judges, one by two, one by one of them in part, and one by nobody."""
    job_id = queue_job(engine, tenant, 128, judges=JUDGES)
    for judge in JUDGES:
        hear(engine, judge)
    for judge in JUDGES[:2]:
        hear(engine, judge)
    held = hold(engine, FIRST)
    recorder = Recorder(engine, held, URL)
    recorder.flush(heard(held, range(64, 70)))
    assert pass_deadline(engine) == 0
    with pytest.raises(Fenced):
        recorder.flush(heard(held, range(70, 71)))
    assert shown(engine, tenant, job_id)["status"] == "running"
    assert counts(engine, tenant, job_id) == {"running": 96, "expired": 32}
    assert expire_overdue(engine, URL) == 0
    assert conclude_all(engine) == 3
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["succeeded"], job["expired"]) == ("expired", 70, 58)
    lines = results(engine, tenant, job_id)
    found = {line["seq"]: (line["status"], (line["verdict"] or {}).get("missing")) for line in lines}
    assert len(lines) == 128
    assert found == {
        **dict.fromkeys(range(32), ("succeeded", None)),
        **dict.fromkeys(range(32, 64), ("succeeded", [THIRD])),
        **dict.fromkeys(range(64, 70), ("succeeded", [SECOND, THIRD])),
        **dict.fromkeys(range(70, 128), ("expired", None)),
    }


def test_a_job_whose_every_item_is_concluded_at_its_deadline_is_complete(engine: Engine, tenant: UUID) -> None:
    job_id = queue_job(engine, tenant, 8, judges=JUDGES[:2])
    hear(engine, FIRST)
    held = hold(engine, SECOND)
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deadline = now()"))
    Recorder(engine, held, URL).release(heard(held, range(3)))
    assert conclude_all(engine) == 1
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", 8)
    assert [line["verdict"].get("missing") for line in results(engine, tenant, job_id)] == [None] * 3 + [[SECOND]] * 5


def test_a_panel_that_nobody_heard_expires_at_once(engine: Engine, tenant: UUID) -> None:
    job_id = queue_job(engine, tenant, 40, judges=JUDGES)
    assert pass_deadline(engine) == 1
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["expired"]) == ("expired", 40)


def test_conclusions_are_not_waited_for_for_ever(engine: Engine, tenant: UUID) -> None:
    job_id = queue_job(engine, tenant, 40, judges=JUDGES[:2])
    hear(engine, FIRST)
    hear(engine, SECOND)
    assert pass_deadline(engine) == 0
    assert counts(engine, tenant, job_id) == {"running": 32, "expired": 8}
    assert pass_deadline(engine, by="4 min 50 s") == 0
    assert pass_deadline(engine, by="5 min") == 1
    assert conclude_all(engine) == 0
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["succeeded"], job["expired"]) == ("expired", 0, 40)


def nobody_has_begun(engine: Engine) -> None:
    """The job as it was submitted."""


def one_judge_is_done(engine: Engine) -> None:
    hear(engine, FIRST)


def opinions_wait_to_be_joined(engine: Engine) -> None:
    for judge in JUDGES[:2]:
        hear(engine, judge)


def a_chunk_is_concluded(engine: Engine) -> None:
    opinions_wait_to_be_joined(engine)
    conclude_all(engine)


def the_deadline_is_past(engine: Engine) -> None:
    hear(engine, FIRST)
    pass_deadline(engine)


@pytest.mark.parametrize(
    ("so_far", "kept"),
    [
        (nobody_has_begun, {"cancelled": 40}),
        (one_judge_is_done, {"cancelled": 40}),
        (opinions_wait_to_be_joined, {"cancelled": 40}),
        (a_chunk_is_concluded, {"succeeded": 32, "cancelled": 8}),
        (the_deadline_is_past, {"expired": 8, "cancelled": 32}),
    ],
)
def test_a_cancel_joins_nothing_more(
    engine: Engine, tenant: UUID, so_far: Callable[[Engine], None], kept: dict[str, int]
) -> None:
    job_id = queue_job(engine, tenant, 40, judges=JUDGES[:2])
    so_far(engine)
    assert stop(engine, tenant, job_id) == "cancelled"
    assert conclude_all(engine) == 0
    check_ended_job(engine, job_id)
    assert counts(engine, tenant, job_id) == kept
    assert len(results(engine, tenant, job_id)) == 40


def test_a_cancel_waits_for_the_judges_that_are_hearing_alone(engine: Engine, tenant: UUID) -> None:
    job_id = queue_job(engine, tenant, 40, judges=JUDGES)
    held = [hold(engine, judge) for judge in JUDGES]
    recorders = [Recorder(engine, each, URL) for each in held]
    recorders[0].end(heard(held[0], range(32)))
    assert stop(engine, tenant, job_id) == "cancelling"
    assert counts(engine, tenant, job_id) == {"cancelled": 40}
    recorders[1].end(heard(held[1], range(32)))
    assert shown(engine, tenant, job_id)["status"] == "cancelling"
    recorders[2].release(heard(held[2], range(5)))
    assert conclude_all(engine) == 0
    job = check_ended_job(engine, job_id)
    assert (job["status"], job["cancelled"], job["calls"]) == ("cancelled", 40, 69)


@pytest.mark.parametrize("last", ["cancel", "expiry"])
def test_every_result_exactly_once_whatever_ends_meanwhile(engine: Engine, tenant: UUID, last: str) -> None:
    job_id = queue_job(engine, tenant, 200, judges=JUDGES[:2])
    read: list[int] = []
    cursor: Cursor = START

    def read_on() -> None:
        nonlocal cursor
        more = True
        while more:
            with transaction(engine) as connection:
                page = results_page(connection, tenant, job_id, 7, cursor)
            read.extend(json.loads(line)["seq"] for line in page.lines)
            cursor, more = page.cursor, page.more

    first = [hold(engine, FIRST) for _ in range(6)]
    second = [hold(engine, SECOND) for _ in range(5)]
    for ordinal in (3, 0, 5):
        Recorder(engine, first[ordinal], URL).end(heard(first[ordinal], range(ordinal * 32, ordinal * 32 + 32)))
        read_on()
    for ordinal in (0, 3, 1):
        Recorder(engine, second[ordinal], URL).end(heard(second[ordinal], range(ordinal * 32, ordinal * 32 + 32)))
        conclude_all(engine)
        read_on()
    assert read == [*range(32), *range(96, 128)]
    if last == "cancel":
        stop(engine, tenant, job_id)
        read_on()
        for held in (first[1], first[2], first[4], second[2], second[4]):
            Recorder(engine, held, URL).release(Batch())
    else:
        pass_deadline(engine)
        read_on()
        conclude_all(engine)
    read_on()
    check_ended_job(engine, job_id)
    assert sorted(read) == list(range(200))
    assert [line["seq"] for line in results(engine, tenant, job_id)] == read


class Killed(BaseException):
    """What ends a process."""


def test_a_death_in_mid_conclusion_loses_and_repeats_nothing(
    engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = queue_job(engine, tenant, 8, judges=JUDGES[:2])
    opinions_wait_to_be_joined(engine)

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(settle, "end_chunk", die)
        conclude_next(engine, URL)
    assert counts(engine, tenant, job_id) == {"running": 8}
    assert conclude_all(engine) == 1
    assert check_ended_job(engine, job_id)["succeeded"] == 8


def test_two_that_conclude_at_once_give_one_verdict(
    engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = queue_job(engine, tenant, 8, judges=JUDGES[:2])
    opinions_wait_to_be_joined(engine)
    together = Barrier(2)
    joined = conclude._joined

    def both(connection: Connection, chunk: RowMapping) -> Batch:
        batch = joined(connection, chunk)
        together.wait(30)
        return batch

    monkeypatch.setattr(conclude, "_joined", both)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: conclude_next(engine, URL), range(2))) == [True, True]
    assert check_ended_job(engine, job_id)["succeeded"] == 8


def test_a_chunk_cancelled_while_it_is_being_joined_stays_cancelled(
    engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = queue_job(engine, tenant, 8, judges=JUDGES[:2])
    opinions_wait_to_be_joined(engine)
    joined = conclude._joined

    def cancelled_meanwhile(connection: Connection, chunk: RowMapping) -> Batch:
        stop(engine, tenant, job_id)
        return joined(connection, chunk)

    monkeypatch.setattr(conclude, "_joined", cancelled_meanwhile)
    assert conclude_next(engine, URL)
    assert check_ended_job(engine, job_id)["cancelled"] == 8


def test_a_job_that_is_locked_holds_up_no_other(engine: Engine, tenant: UUID) -> None:
    locked, free = (queue_job(engine, tenant, 8, judges=JUDGES[:2]) for _ in range(2))
    for _ in (locked, free):
        opinions_wait_to_be_joined(engine)
    with transaction(engine) as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        connection.execute(text("SELECT 1 FROM job WHERE id = :id FOR UPDATE"), {"id": locked})
        assert conclude_all(engine) == 2
    assert check_ended_job(engine, free)["succeeded"] == 8
    assert counts(engine, tenant, locked) == {"running": 8}


def test_a_conclusion_that_fails_stops_no_other_and_is_tried_again_in_a_minute(
    engine: Engine, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = (queue_job(engine, tenant, 8, judges=JUDGES[:2]) for _ in range(2))
    for _ in (bad, good):
        opinions_wait_to_be_joined(engine)
    joined = conclude._joined

    def fails(connection: Connection, chunk: RowMapping) -> Batch:
        if chunk["job_id"] == bad:
            raise ValueError("no")
        return joined(connection, chunk)

    with monkeypatch.context() as patched:
        patched.setattr(conclude, "_joined", fails)
        assert conclude_all(engine) == 2
        assert check_ended_job(engine, good)["succeeded"] == 8
    assert conclude_all(engine) == 0
    assert counts(engine, tenant, bad) == {"running": 8}
    with transaction(engine) as connection:
        connection.execute(text("UPDATE chunk SET claimed_at = claimed_at - interval '1 minute' WHERE model = 'cpu'"))
    assert conclude_all(engine) == 1
    assert check_ended_job(engine, bad)["succeeded"] == 8
