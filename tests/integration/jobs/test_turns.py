"""Whose turn it is: class, tenant, job, age; nobody starves, nobody saves up, and claimers never meet."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from services.foundation.database import transaction
from services.foundation.fleet import Fleet, FleetModel
from services.foundation.identifiers import new_id
from services.jobs.cancel import cancel
from services.jobs.claim import Claim, claim
from services.jobs.record import Recorder
from services.jobs.rescue import expire_overdue
from services.jobs.stages import CONCLUDE, Step, lay_out
from services.jobs.turns import step_down
from services.vocabulary import Priority, Stage
from tests.factories import MODEL, make_tenant, queue_job
from tests.hearings import a_worker, heard, taken
from tests.invariants import check_ended_job
from tests.locks import sessions_waiting
from tests.parts import eventually

URL = "http://assizes.test"
CHUNK = 32  # items, which take two calls each
COST = 2 * CHUNK


def jobs_of(claims: Sequence[Claim]) -> list[UUID]:
    return [held.job_id for held in claims]


def take(engine: Engine, count: int, model: str = MODEL) -> list[Claim]:
    worker = a_worker(engine, model)
    return [taken(engine, worker, model) for _ in range(count)]


def end(engine: Engine, held: Claim) -> None:
    Recorder(engine, held, URL).end(heard(held, range(held.first_seq, held.end_seq)))


def served(engine: Engine) -> dict[tuple[str, int, UUID], int]:
    """What each tenant has been served, by model and class."""
    with transaction(engine) as connection:
        rows = connection.execute(text("SELECT model, priority, tenant_id, served FROM share"))
        return {(row.model, row.priority, row.tenant_id): row.served for row in rows}


def in_line(engine: Engine) -> set[tuple[str, UUID]]:
    with transaction(engine) as connection:
        return {(row.model, row.job_id) for row in connection.execute(text("SELECT model, job_id FROM turn"))}


def test_tenants_take_turns_however_many_jobs_each_has(engine: Engine) -> None:
    large, small = make_tenant(engine, "large"), make_tenant(engine, "small")
    old, young = (queue_job(engine, large, 2 * CHUNK) for _ in range(2))
    other = queue_job(engine, small, 4 * CHUNK)
    assert jobs_of(take(engine, 8)) == [old, other, young, other] * 2


def test_classes_come_first_and_are_counted_apart(engine: Engine) -> None:
    busy, idle = make_tenant(engine, "busy"), make_tenant(engine, "idle")
    bulk = {tenant: queue_job(engine, tenant, 2 * CHUNK, priority="bulk") for tenant in (busy, idle)}
    urgent = queue_job(engine, busy, 3 * CHUNK, priority="interactive")
    assert jobs_of(take(engine, 7)) == [urgent] * 3 + [bulk[busy], bulk[idle]] * 2
    assert served(engine) == {(MODEL, 0, busy): 3 * COST, (MODEL, 2, busy): 2 * COST, (MODEL, 2, idle): 2 * COST}


def test_what_an_item_costs_decides_whose_turn_it_is(engine: Engine) -> None:
    dear, cheap = make_tenant(engine, "dear"), make_tenant(engine, "cheap")
    once = queue_job(engine, dear, 6, options={"samples": 4, "mode": "reason"})
    often = queue_job(engine, cheap, 12 * CHUNK, options={"orders": "given"})
    assert [(held.job_id, held.end_seq - held.first_seq) for held in take(engine, 4)] == [
        (once, 6),  # 48 calls
        (often, CHUNK),
        (often, CHUNK),
        (often, CHUNK),
    ]


def test_a_newcomer_starts_where_the_others_stand(engine: Engine) -> None:
    first, second = make_tenant(engine, "first"), make_tenant(engine, "second")
    old = queue_job(engine, first, 20 * CHUNK)
    take(engine, 5)
    new = queue_job(engine, second, 20 * CHUNK)
    # where the last chunk of the first began; of tenants that stand alike the job comes first that has had less
    assert jobs_of(take(engine, 6)) == [new, new, old, new, old, new]


def test_a_new_job_starts_where_its_tenants_other_jobs_stand(engine: Engine) -> None:
    tenant = make_tenant(engine)
    old = queue_job(engine, tenant, 20 * CHUNK)
    take(engine, 5)
    new = queue_job(engine, tenant, 20 * CHUNK)
    assert jobs_of(take(engine, 6)) == [new, old, new, old, new, old]


def test_a_tenant_that_comes_back_has_neither_credit_nor_debt(engine: Engine) -> None:
    staying, leaving = make_tenant(engine, "staying"), make_tenant(engine, "leaving")
    with_debt = queue_job(engine, leaving, 9 * CHUNK)
    take(engine, 9)
    with transaction(engine) as connection:
        cancel(connection, leaving, with_debt, URL)
        connection.execute(text("UPDATE job SET deadline = now()"))
    expire_overdue(engine, URL)
    check_ended_job(engine, with_debt)
    lasting = queue_job(engine, staying, 40 * CHUNK)
    short = queue_job(engine, leaving, CHUNK)
    assert jobs_of(take(engine, 2)) == [lasting, short]
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deadline = now() WHERE id = :id"), {"id": short})
    expire_overdue(engine, URL)
    take(engine, 9)
    back = queue_job(engine, leaving, 9 * CHUNK)
    assert jobs_of(take(engine, 5)) == [back, back, lasting, back, lasting]


def test_a_job_that_had_nothing_queued_for_a_while_has_saved_nothing_up(engine: Engine) -> None:
    waiting, busy = make_tenant(engine, "waiting"), make_tenant(engine, "busy")
    idle = queue_job(engine, waiting, 4 * CHUNK)
    held = take(engine, 4)
    lasting = queue_job(engine, busy, 40 * CHUNK)
    take(engine, 9)
    for each in held:
        Recorder(engine, each, URL).release(heard(each, []))
    assert jobs_of(take(engine, 5)) == [idle, idle, lasting, idle, lasting]


def test_every_so_often_the_oldest_job_is_served_whatever_its_class(engine: Engine) -> None:
    tenant = make_tenant(engine)
    bulk = queue_job(engine, tenant, 2 * CHUNK, priority="bulk")
    standard = queue_job(engine, tenant, 40 * CHUNK)
    worker = a_worker(engine)
    oldest = claim(engine, worker, MODEL, oldest=True)
    assert oldest is not None
    assert jobs_of([oldest, *take(engine, 2)]) == [bulk, standard, standard]
    none = claim(engine, worker, MODEL, Priority.INTERACTIVE, oldest=True)
    assert none is None


def test_what_is_served_out_of_turn_counts_but_puts_nobody_forward(engine: Engine) -> None:
    first, second, third = (make_tenant(engine, name) for name in ("first", "second", "third"))
    favoured = queue_job(engine, first, 20 * CHUNK)
    others = [queue_job(engine, tenant, 20 * CHUNK) for tenant in (second, third)]
    worker = a_worker(engine)
    for _ in range(3):
        assert claim(engine, worker, MODEL, oldest=True) is not None
    late = queue_job(engine, make_tenant(engine, "late"), 20 * CHUNK)
    assert jobs_of(take(engine, 10)) == [*others, late] * 3 + [favoured]


def test_a_job_all_of_whose_chunks_are_being_claimed_is_passed_over(engine: Engine) -> None:
    first, second = make_tenant(engine, "first"), make_tenant(engine, "second")
    locked, free = queue_job(engine, first, 2 * CHUNK), queue_job(engine, second, CHUNK)
    with transaction(engine) as connection:
        connection.execute(text("SELECT 1 FROM chunk WHERE job_id = :id FOR UPDATE"), {"id": locked})
        assert jobs_of(take(engine, 1)) == [free]
        assert claim(engine, a_worker(engine), MODEL) is None
    assert jobs_of(take(engine, 2)) == [locked, locked]


def test_the_models_of_a_panel_are_charged_apart(engine: Engine) -> None:
    entries = {
        name: FleetModel(name=name, protocol="sdrm", weights="nowhere", options={"mode": "reason", "samples": samples})
        for name, samples in ((MODEL, 1), ("thorough", 3))
    }
    tenant = make_tenant(engine)
    job_id = queue_job(engine, tenant, 10, fleet=Fleet(models=entries), judges=[*entries])
    assert in_line(engine) == {(MODEL, job_id), ("thorough", job_id)}
    take(engine, 1)
    assert served(engine) == {(MODEL, 1, tenant): 20}
    take(engine, 1, "thorough")
    assert served(engine) == {(MODEL, 1, tenant): 20, ("thorough", 1, tenant): 60}


def test_what_is_served_of_one_model_counts_for_no_other(engine: Engine) -> None:
    first, second = make_tenant(engine, "first"), make_tenant(engine, "second")
    queue_job(engine, first, 9 * CHUNK)
    take(engine, 9)
    other = {tenant: queue_job(engine, tenant, CHUNK, judges=["other"]) for tenant in (first, second)}
    assert jobs_of(take(engine, 2, "other")) == [other[first], other[second]]


def test_counts_outgrow_small_numbers(engine: Engine) -> None:
    tenant = make_tenant(engine)
    queue_job(engine, tenant, 3 * CHUNK)
    take(engine, 1)
    with transaction(engine) as connection:
        connection.execute(text("UPDATE turn SET served = 32767"))
        connection.execute(text("UPDATE share SET served = 32767"))
    take(engine, 1)
    assert served(engine) == {(MODEL, 1, tenant): 32767 + COST}


def complete(engine: Engine, _tenant: UUID, _job_id: UUID) -> None:
    for held in take(engine, 2):
        end(engine, held)


def cancel_queued(engine: Engine, tenant: UUID, job_id: UUID) -> None:
    with transaction(engine) as connection:
        cancel(connection, tenant, job_id, URL)


def cancel_running(engine: Engine, tenant: UUID, job_id: UUID) -> None:
    (held,) = take(engine, 1)
    cancel_queued(engine, tenant, job_id)
    assert in_line(engine) == {(MODEL, job_id)}
    Recorder(engine, held, URL).release(heard(held, []))


def expire(engine: Engine, _tenant: UUID, _job_id: UUID) -> None:
    take(engine, 1)
    with transaction(engine) as connection:
        connection.execute(text("UPDATE job SET deadline = now()"))
    expire_overdue(engine, URL)


@pytest.mark.parametrize("way", [complete, cancel_queued, cancel_running, expire])
def test_who_ends_leaves_the_line(engine: Engine, way: Callable[[Engine, UUID, UUID], None]) -> None:
    tenant = make_tenant(engine)
    job_id = queue_job(engine, tenant, 2 * CHUNK)
    assert in_line(engine) == {(MODEL, job_id)}
    way(engine, tenant, job_id)
    check_ended_job(engine, job_id)
    assert (in_line(engine), served(engine)) == (set(), {})


def test_a_share_stays_for_the_tenants_other_jobs(engine: Engine) -> None:
    tenant = make_tenant(engine)
    ended, open_one = queue_job(engine, tenant, CHUNK), queue_job(engine, tenant, CHUNK)
    (held,) = take(engine, 1)
    end(engine, held)
    assert held.job_id == ended
    assert (in_line(engine), served(engine)) == ({(MODEL, open_one)}, {(MODEL, 1, tenant): COST})


def test_a_share_goes_when_the_last_two_jobs_end_at_once(engine: Engine) -> None:
    tenant = make_tenant(engine)
    first, second = queue_job(engine, tenant, CHUNK), queue_job(engine, tenant, CHUNK)
    take(engine, 2)

    def end_second() -> None:
        with transaction(engine) as connection:
            step_down(connection, second)

    with ThreadPoolExecutor(1) as pool:
        with transaction(engine) as connection:
            step_down(connection, first)
            ending = pool.submit(end_second)
            eventually(lambda: ending.done() or sessions_waiting(engine) == 1, "the second end waits")
        ending.result(timeout=30)
    assert (in_line(engine), served(engine)) == (set(), {})


def test_claims_ends_cancels_and_submissions_at_once_never_deadlock(engine: Engine) -> None:
    tenants = [make_tenant(engine, f"tenant {number}") for number in range(3)]
    jobs = [(tenant, queue_job(engine, tenant, 5 * CHUNK, judges=[MODEL, "other"])) for tenant in tenants * 3]
    together = Barrier(8)

    def work(model: str) -> list[Claim]:
        worker, claims = a_worker(engine, model), []
        together.wait(30)
        for number in range(1000):
            held = claim(engine, worker, model, oldest=number % 8 == 7)
            if held is None:
                return claims
            claims.append(held)
            end(engine, held)
        raise AssertionError("there is no end of chunks")

    def disturb(number: int) -> list[Claim]:
        together.wait(30)
        for tenant, job_id in jobs[number::2][:2]:
            queue_job(engine, tenant, 2 * CHUNK)
            with transaction(engine) as connection:
                cancel(connection, tenant, job_id, URL)
        return []

    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(work, model) for model in (MODEL, "other") * 3]
        working += [pool.submit(disturb, number) for number in range(2)]
        claims = [held for each in working for held in each.result(timeout=120)]
    keys = [held.claim_key[:-1] for held in claims]
    assert len(keys) == len(set(keys))
    worker = a_worker(engine)
    while held := claim(engine, worker, MODEL):  # of what was submitted when all workers had left
        end(engine, held)
    assert claim(engine, a_worker(engine, "other"), "other") is None
    with transaction(engine) as connection:
        left = connection.execute(text("SELECT DISTINCT stage, state FROM chunk WHERE state IN ('queued', 'running')"))
        assert {tuple(row) for row in left} <= {(CONCLUDE.stage, "queued")}


@dataclass
class Queue:
    """A job of the reference model: chunks of one cost."""

    tenant: int
    items: int
    calls: int
    served: int = 0
    job_id: UUID = field(default_factory=new_id)

    @property
    def cost(self) -> int:
        """Of a chunk, in calls."""
        return self.items * self.calls


QUEUES = st.lists(
    st.builds(Queue, tenant=st.integers(0, 2), items=st.integers(1, 32), calls=st.sampled_from([1, 2, 7, 3840])),
    min_size=1,
    max_size=6,
)
CLAIMS = 24


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(queues=QUEUES)
def test_busy_tenants_and_busy_jobs_are_served_alike(engine: Engine, queues: list[Queue]) -> None:
    model = f"model {new_id()}"  # each example has its own lines
    tenants = {number: make_tenant(engine, f"tenant {new_id()}") for number in range(3)}
    for queue in queues:
        lay_out_queue(engine, tenants[queue.tenant], queue, model)
    of_tenant = dict.fromkeys((queue.tenant for queue in queues), 0)
    dearest = max(queue.cost for queue in queues)
    for held in take(engine, CLAIMS, model):
        due = min(queues, key=lambda queue: (of_tenant[queue.tenant], queue.served, queue.job_id))
        assert held.job_id == due.job_id
        due.served += due.cost
        of_tenant[due.tenant] += due.cost
        assert max(of_tenant.values()) - min(of_tenant.values()) <= dearest
        of_jobs = [queue.served for queue in queues if queue.tenant == due.tenant]
        assert max(of_jobs) - min(of_jobs) <= dearest
    assert (
        served(engine).items()
        >= {(model, 1, tenants[number]): calls for number, calls in of_tenant.items() if calls}.items()
    )


def lay_out_queue(engine: Engine, tenant: UUID, queue: Queue, model: str) -> None:
    """A stored job without items, with more chunks than are claimed."""
    add_job = text(
        """
        INSERT INTO job (id, tenant_id, day, kind, status, priority, judges, settings, total, deadline)
        VALUES (:id, :tenant, current_date, 'judgement', 'queued', 1, '{}', '{}', :total, now() + interval '1 day')
        """
    )
    total = queue.items * (CLAIMS + 1)
    with transaction(engine) as connection:
        connection.execute(add_job, {"id": queue.job_id, "tenant": tenant, "total": total})
        steps, calls = [Step(Stage.HEAR, (model,))], {Stage.HEAR: {model: queue.calls}}
        lay_out(connection, queue.job_id, steps, calls, total, queue.items, Priority.STANDARD)
