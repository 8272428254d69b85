"""A real worker on a scripted runtime: soft verdicts of a judge that reasons."""

import json

import pytest

from tests.invariants import check_ended_job
from tests.parts import Parts


def test_a_written_verdict_gets_its_probability_from_a_call_of_one_token(parts: Parts) -> None:
    parts.runtime()
    parts.script({"text": "The first is right. <verdict>A</verdict> So be it.", "p_first": 0.8})
    parts.maintenance()
    parts.worker()
    options = {"mode": "reason", "decide": "soft", "orders": "given"}
    job_id = parts.queue(parts.tenant(), 2, options=options)
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["calls"]) == ("completed", 4)
    for row in parts.rows("SELECT body FROM opinion WHERE job_id = :job_id", job_id=job_id):
        opinion = row["body"]
        assert opinion["p_a"] == pytest.approx(0.8)
        assert (opinion["winner"], opinion["forced"], opinion["without_p"], opinion["flags"]) == ("A", 0, 0, [])
    written, lent = parts.rows("SELECT * FROM trace WHERE job_id = :job_id AND seq = 0 ORDER BY call", job_id=job_id)
    assert (written["forced"], written["reading"]["rule"]) == (False, "verdict_block")
    assert (lent["forced"], lent["reading"]["rule"]) == (True, "verdict_probability")
    assert json.loads(lent["prompt"]) == json.loads(written["prompt"]) + "The first is right. <verdict>"
