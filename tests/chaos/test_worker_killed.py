"""Workers that die at named points of their work, twenty times over: every item is heard once, and none is blamed."""

import signal

import httpx
import pytest

from tests.invariants import check_ended_job
from tests.parts import Parts, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ITEMS = 640  # twenty chunks
TAKEN = ("--before", "workers.gpu:claim")  # a message is taken, nothing is claimed
CLAIMED = ("--before", "workers.gpu:hear_chunk")
HEARD = ("--before", "services.jobs.record:Recorder.flush")
FLUSHING = ("--after", "services.jobs.record:write_batch")  # written, not committed
FLUSHED = ("--after", "services.jobs.record:Recorder.flush")
ENDING = ("--after", "services.jobs.record:end_chunk")  # not committed
ENDED = ("--after", "services.jobs.record:Recorder.end")
# Four deaths a job: with a fifth, an item that is there at all of them could be found guilty by bad luck.
DEATHS = (
    ((TAKEN, 1), (CLAIMED, 1), (HEARD, 1), (FLUSHING, 1)),
    ((FLUSHED, 1), (ENDING, 1), (ENDED, 1), (CLAIMED, 2)),
    ((TAKEN, 2), (FLUSHING, 2), (FLUSHED, 3), (ENDING, 2)),
    ((TAKEN, 1), (CLAIMED, 1), (HEARD, 3), (ENDED, 2)),
    ((CLAIMED, 1), (FLUSHING, 4), (FLUSHED, 1), (ENDING, 1)),
)


@pytest.mark.parametrize("deaths", DEATHS, ids=range(len(DEATHS)))
def test_workers_die_where_it_hurts_most(parts: Parts, deaths: tuple[tuple[tuple[str, str], int], ...]) -> None:
    parts.settings |= {"CHUNK_SLOTS": "2", "LEASE": "2"}  # so that each of them gets some chunks
    parts.runtime("--slots", "32")
    parts.script({"match": "the first answer", "latency_s": 0}, {"latency_s": 0.2})
    parts.maintenance()
    job_id = parts.queue(parts.tenant(), ITEMS)
    doomed = [parts.doomed_worker(*point, "--nth", str(nth)) for point, nth in deaths]
    for worker, death in zip(doomed, deaths, strict=True):
        eventually(worker.ended, f"it dies at {death}")
        assert worker.popen.returncode == -signal.SIGKILL
    assert parts.job(job_id)["ended_at"] is None
    httpx.delete(f"{parts.runtime_url}/scripted/script").raise_for_status()  # the rest need not take long
    parts.worker()
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"]) == ("completed", ITEMS)
