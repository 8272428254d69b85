"""Real workers on scripted runtimes: reappraisals are written, gated, scored by a committee, chosen and compared."""

import json
from uuid import UUID

import numpy as np
import pytest

from services.foundation.database import transaction
from services.jobs.results import one_result
from tests.committees import BLAND, KIND, MEMBERS, THEIRS, Committee, results, scenarios
from tests.invariants import check_ended_job
from tests.parts import eventually

TEXTS = [
    {"custom_id": text, "context": [{"role": "user", "content": "Say something kind."}], "response": text}
    for text in (KIND, BLAND)
]


def test_a_committee_chooses_what_was_written_and_a_judge_compares_it(committee: Committee) -> None:
    committee.serve("writer", "judge", "grades", "rm-0", "rm-1")
    tenant = committee.parts.tenant()
    texts = check_chosen_and_compared(committee, tenant)
    check_chosen_alone(committee, tenant, texts)
    check_scored(committee, tenant)


def check_chosen_and_compared(committee: Committee, tenant: UUID) -> int:
    """Returns how many texts were scored."""
    parts = committee.parts
    options = {"candidates": 2, "committee": "mixed", "compare": "judge"}
    items = [
        *scenarios(2, baseline={"content": THEIRS, "system": "theirs"}),
        {"custom_id": "h", "scenario": "This is hopeless.", "baseline": THEIRS},
    ]
    job_id = committee.queue(tenant, items, options=options)
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["succeeded"], job["failed"]) == ("completed_with_errors", 2, 1)
    *chosen, hopeless = results(parts, tenant, job_id)
    for line in chosen:
        written = line["reappraisal"]
        assert (line["verdict"], written["text"], written["committee"]) == (None, KIND, "mixed")
        picked = written["candidates"][written["selected"]]
        assert (picked["text"], picked["outcome"], picked["sentences"], picked["missing"]) == (KIND, "accepted", 2, [])
        assert set(picked["scores"]) == set(MEMBERS)
        assert {name: model["outcome"] for name, model in picked["models"].items()} == dict.fromkeys(
            ("rm-0", "rm-1", "grades"), "decided"
        )
        z = [score["z"] for score in picked["scores"].values()]
        assert picked["score"] == pytest.approx(np.mean(z) - 0.5 * np.std(z))
        assert (written["comparison"]["winner"], written["comparison"]["p_a"]) == ("A", pytest.approx(0.8))
        assert {candidate["attempt"] for candidate in written["candidates"]} <= {0, 1, 2}
        assert line["usage"]["calls"] == len(written["candidates"]) + 3 * len(written["eligible"]) + 2
    assert sum(line["reappraisal"]["candidates"][0]["outcome"] == "too_long" for line in chosen) == 1
    assert (hopeless["error"]["code"], hopeless["reappraisal"]["text"]) == ("gated", None)
    assert [one["outcome"] for one in hopeless["reappraisal"]["candidates"]] == ["too_long"] * 6
    assert hopeless["usage"]["calls"] == 6

    with transaction(parts.engine) as connection:
        shown = json.loads(one_result(connection, tenant, job_id, "s1"))
    assert shown["item"] == items[1]
    assert {trace["stage"] for trace in shown["traces"]} == {"reappraise", "score", "compare"}
    anchors = parts.rows("SELECT model, jsonb_array_length(scores) AS n FROM anchor_scores JOIN runtime_epoch "
                         "ON runtime_epoch.id = epoch_id ORDER BY model")  # fmt: skip
    assert anchors == [{"model": model, "n": 40} for model in ("grades", "rm-0", "rm-1")]
    texts = sum(len(line["reappraisal"]["eligible"]) for line in chosen)
    assert len(committee.scored("rm-0")) == 40 + texts
    return texts


def check_chosen_alone(committee: Committee, tenant: UUID, texts: int) -> None:
    parts = committee.parts
    again = committee.queue(tenant, scenarios(1), options={"candidates": 2, "committee": "mixed"})
    parts.wait_until_ended(again)
    check_ended_job(parts.engine, again)
    (line,) = results(parts, tenant, again)
    assert line["reappraisal"]["comparison"] is None
    assert len(committee.scored("rm-0")) == 40 + texts + 2  # the anchors are measured once in an epoch


def check_scored(committee: Committee, tenant: UUID) -> None:
    parts = committee.parts
    job_id = parts.queue(tenant, TEXTS, kind="scoring", committee="mixed")
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["calls"]) == ("completed", 6)
    kind, bland = results(parts, tenant, job_id)
    assert kind["score"] > bland["score"]
    measured = {row["model"]: row["scores"] for row in parts.rows(
        "SELECT model, scores FROM anchor_scores JOIN runtime_epoch ON runtime_epoch.id = epoch_id"
    )}  # fmt: skip
    for line in (kind, bland):
        raw = {row["model"]: row["scores"][0] for row in parts.rows(
            "SELECT model, scores FROM score WHERE job_id = :job_id AND seq = :seq", job_id=job_id, seq=line["seq"]
        )}  # fmt: skip
        z = []
        for member, of_member in MEMBERS.items():
            value = np.mean([raw[model] for model in of_member])
            reference = np.mean([measured[model] for model in of_member], axis=0)
            z.append((value - np.mean(reference)) / np.std(reference))
            assert line["scores"][member] == {"raw": pytest.approx(value), "z": pytest.approx(z[-1])}
        assert (line["mean"], line["std"]) == (pytest.approx(np.mean(z)), pytest.approx(np.std(z)))
        assert line["score"] == pytest.approx(np.mean(z) - 0.5 * np.std(z))


def test_a_member_that_is_down_is_waited_for_and_its_restart_changes_no_score(committee: Committee) -> None:
    """The runtime is restarted alone: its worker finds out, and measures the anchors anew."""
    committee.serve("writer", "grades", "rm-0")
    parts, tenant = committee.parts, committee.parts.tenant()
    waits = committee.queue(tenant, scenarios(2), options={"candidates": 2, "committee": "within"})
    scored = "SELECT count(*) AS n FROM chunk WHERE stage = 'score' AND state = 'finished' AND job_id = :job_id"
    eventually(lambda: parts.rows(scored, job_id=waits)[0]["n"] == 1, "the other member has scored")
    assert parts.job(waits)["status"] == "running"
    assert results(parts, tenant, waits) == []

    told = []
    for bias in (0.125, -3.0):
        runtime = committee.reward_model("rm-1", bias)
        if not told:
            committee.work("rm-1")
            parts.wait_until_ended(waits)
        job_id = parts.queue(tenant, TEXTS, kind="scoring", committee="mixed")
        parts.wait_until_ended(job_id)
        check_ended_job(parts.engine, job_id)
        told.append(results(parts, tenant, job_id))
        runtime.stop()
    assert check_ended_job(parts.engine, waits)["status"] == "completed"
    assert [line["reappraisal"]["text"] for line in results(parts, tenant, waits)] == [KIND] * 2
    for before, after in zip(*told, strict=True):
        assert after["scores"]["rm"]["raw"] == pytest.approx(before["scores"]["rm"]["raw"] - 3.125 / 2)
        assert after["score"] == pytest.approx(before["score"])
        assert after["epochs"]["rm-1"] != before["epochs"]["rm-1"]
        assert after["epochs"]["rm-0"] == before["epochs"]["rm-0"]
    ended = "SELECT ended_at IS NOT NULL AS ended FROM runtime_epoch WHERE model = 'rm-1' ORDER BY started_at"
    assert [row["ended"] for row in parts.rows(ended)] == [True, False]
