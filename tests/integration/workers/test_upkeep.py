"""The maintenance process removes what was deleted, and what is older than it is set to keep."""

from services.foundation.database import transaction
from services.jobs.cancel import cancel
from services.jobs.delete import delete
from tests.integration.jobs.test_deleting import left, let_a_minute_pass
from tests.integration.jobs.test_retention import aged, named
from tests.parts import Parts, eventually


def test_deleted_and_old_jobs_are_gone_and_old_traces_too(parts: Parts) -> None:
    tenant = parts.tenant()
    jobs = [parts.queue(tenant, 3) for _ in range(4)]
    with transaction(parts.engine) as connection:
        for job_id in jobs:
            cancel(connection, tenant, job_id, "http://assizes.test")
    deleted, old, without_traces, young = jobs
    aged(parts.engine, old, days_ago=5)
    aged(parts.engine, without_traces, days_ago=3)
    with transaction(parts.engine) as connection:
        delete(connection, tenant, deleted)
    let_a_minute_pass(parts.engine)
    parts.settings |= {"KEEP_TRACES": "2", "KEEP_JOBS": "4"}
    parts.maintenance()
    eventually(lambda: not left(parts.engine, deleted), "the deleted job is removed")
    marked = "SELECT id FROM job WHERE deleted_at IS NOT NULL"
    eventually(lambda: parts.rows(marked) == [{"id": old}], "the old job is deleted")
    partition = f"SELECT to_regclass('{named(parts.engine, 3)}') IS NULL AS dropped"
    eventually(lambda: parts.rows(partition) == [{"dropped": True}], "old traces are dropped")
    assert left(parts.engine, without_traces)["item"] == left(parts.engine, young)["item"] == 3
