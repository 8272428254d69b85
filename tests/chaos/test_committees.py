"""Deaths between the stages of a reappraisal: nothing is written or scored twice, and nothing is lost."""

import os
import signal

import pytest

from tests.committees import Committee, results, scenarios
from tests.invariants import check_ended_job
from tests.parts import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ITEMS = 80  # several chunks
UNDER_WAY = 200  # calls of a worker that are on the runtime, or not flushed yet
ANCHORS = 40
FIRST_CALLS = 5  # one a worker, of those that are no reward models


def test_workers_killed_between_and_within_the_stages(committee: Committee) -> None:
    committee.serve("writer", "grades", "rm-0", slow=True)
    parts, tenant = committee.parts, committee.parts.tenant()
    options = {"candidates": 2, "committee": "mixed", "compare": "judge"}
    job_id = committee.queue(tenant, scenarios(ITEMS, baseline="She was busy."), options=options)

    def count(table: str, what: str = "true") -> int:
        return int(
            parts.rows(f"SELECT count(*) AS n FROM {table} WHERE job_id = :job_id AND {what}", job_id=job_id)[0]["n"]
        )

    eventually(lambda: count("reappraisal") > 10, "some texts are written")
    os.kill(committee.workers["writer"].pid, signal.SIGKILL)  # within its stage
    committee.work("writer")
    eventually(lambda: count("chunk", "stage = 'score' AND state = 'finished' AND model = 'grades'"), "some are scored")
    os.kill(committee.workers["grades"].pid, signal.SIGKILL)  # between two chunks of its stage, or within one
    committee.work("grades")
    left = "stage = 'reappraise' AND state <> 'finished'"
    eventually(lambda: count("reappraisal") and not count("chunk", left), "all texts are written")
    os.kill(committee.workers["writer"].pid, signal.SIGKILL)  # between its stage and the next: it is missed no more
    committee.reward_model("rm-1")
    doomed = committee.work("rm-1")
    eventually(lambda: count("score", "model = 'rm-1'") > 10, "the last member scores")
    os.kill(doomed.pid, signal.SIGKILL)
    committee.work("rm-1")
    eventually(lambda: count("assessment") == ITEMS, "all are chosen")
    assert count("opinion") == 0
    committee.work("judge")  # which was never there before: it finds what waits for it
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)
    assert all(line["reappraisal"]["comparison"]["reason"] is None for line in results(parts, tenant, job_id))
    # what was stored was asked once: only what was under way at a death was asked again
    stored = count("trace", "judge = 'rm-0'") + ANCHORS
    assert len(committee.scored("rm-0")) == stored
    assert stored <= len(committee.scored("rm-1")) <= stored + ANCHORS + UNDER_WAY
    others = count("trace", "judge IN ('writer', 'grades', 'judge')")
    assert others <= len(parts.calls()) <= others + 2 * ANCHORS + 2 * UNDER_WAY + FIRST_CALLS
