"""A real worker on a scripted runtime: families that grade, many candidates, samples, and reading it all again."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from embedded import models
from services.contract.jobs import RereadRequest
from services.foundation.database import transaction
from services.foundation.errors import Conflict, Invalid, NotFound
from services.jobs.cancel import cancel
from services.jobs.reread import read_reread, submit_reread
from services.jobs.results import results_page
from services.vocabulary import ItemStatus
from tests.factories import MODEL, comparisons, make_tenant
from tests.invariants import check_ended_job
from tests.parts import Parts

GENRM_ROLES = Path(models.__file__).parent / "sglang_cpu" / "genrm_roles.jinja"


def serve(parts: Parts, *rules: dict[str, Any], **entry: object) -> None:
    """All parts, with a fleet of one model that has these entries."""
    known = {"weights": str(models.make("scripted")), "context_length": 8192, "url": parts.runtime_url}
    lines = [f"{name} = {json.dumps(value)}" for name, value in (known | entry).items()]  # all of these are TOML too
    parts.fleet_file.write_text("\n".join([f"[models.{MODEL}]", *lines]), encoding="utf-8")
    parts.runtime()
    parts.script(*rules)
    parts.maintenance()
    parts.worker()


def results(parts: Parts, tenant: UUID, job_id: UUID) -> list[dict[str, Any]]:
    with transaction(parts.engine) as connection:
        return [json.loads(line) for line in results_page(connection, tenant, job_id, 100).lines]


def many(count: int, candidates: int) -> list[dict[str, Any]]:
    texts = [{"content": f"answer {number}"} for number in range(candidates)]
    return [item | {"candidates": texts, "label": 0} for item in comparisons(count)]


def test_many_candidates_are_heard_in_pairs_and_ranked(parts: Parts) -> None:
    serve(
        parts,
        # whoever is shown first in a pair with answer 2 is preferred by .9 only if it is answer 2
        {"match": "A's Response]\n<assistant>\nanswer 2", "p_first": 0.9},
        {"match": "B's Response]\n<assistant>\nanswer 2", "p_first": 0.1},
        {"match": "A's Response]\n<assistant>\nanswer 0", "p_first": 0.7},
        {"p_first": 0.3},
        protocol="sdrm",
    )
    tenant = parts.tenant()
    job_id = parts.queue(tenant, many(3, 3), options={"mode": "direct"})
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["calls"]) == ("completed", 3 * 6)
    for result in results(parts, tenant, job_id):
        verdict = result["verdict"]
        assert (verdict["winner"], verdict["ranking"], verdict["ranks"]) == (2, [2, 0, 1], [2, 3, 1])
        assert verdict["matrix"][2] == [pytest.approx(0.9), pytest.approx(0.9), None]
        assert (verdict["p_a"], verdict["separated"]) == (None, False)
        assert verdict["scores"] == [pytest.approx(0.4), pytest.approx(0.2), pytest.approx(0.9)]
    slots = [row["slots"] for row in parts.rows("SELECT slots FROM trace WHERE seq = 0 ORDER BY call")]
    assert slots == [[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1]]


def test_a_rubric_grades_each_candidate_alone(parts: Parts) -> None:
    serve(
        parts,
        {"match": "I do not know.", "text": "Useless. <score>1</score>"},
        {"text": "Right. <score>4</score>"},
        **{"protocol": "prompted", "protocol_options.grades": 5},
    )
    tenant = parts.tenant()
    job_id = parts.queue(tenant, 2)
    parts.wait_until_ended(job_id)
    check_ended_job(parts.engine, job_id)
    for result in results(parts, tenant, job_id):
        verdict = result["verdict"]
        (opinion,) = verdict["opinions"]
        assert (verdict["winner"], verdict["p_a"], opinion["grades"]) == ("A", 0.5 + 3 / 8, [4.0, 1.0])
    rows = parts.rows("SELECT shown_order, slots, reading FROM trace WHERE seq = 0 ORDER BY call")
    assert [(row["shown_order"], row["slots"], row["reading"]["scores"]) for row in rows] == [
        (None, [0], [4]),
        (None, [1], [1]),
    ]


def test_a_genrm_is_asked_in_its_own_roles_and_decides_by_scores(parts: Parts) -> None:
    answer = 'So.\n</think>\n{"score_1": %d, "score_2": %d, "ranking": %d}'
    serve(
        parts,
        {"match": "response_1\nI do not know.", "text": answer % (1, 5, 6)},
        {"text": answer % (4, 2, 2)},
        **{"protocol": "genrm", "protocol_options.principle": True, "chat_template": str(GENRM_ROLES)},
    )
    tenant = parts.tenant()
    job_id = parts.queue(tenant, 2, options={"principle": "Be right."})
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["calls"]) == ("completed", 4)
    for result in results(parts, tenant, job_id):
        (opinion,) = result["verdict"]["opinions"]
        assert (opinion["winner"], opinion["grades"], opinion["ranking"]) == ("A", [4.5, 1.5], 1.5)
        # (4 - 2 + 1.5 / 5 = 2.3 and 5 - 1 + 2.5 / 5 = 4.5) / 2
        assert opinion["margin"] == pytest.approx(3.4)
    (prompt,) = {row["prompt"] for row in parts.rows("SELECT prompt FROM trace WHERE seq = 0 AND call = 0")}
    assert "<|im_start|>principle\nBe right.<|im_end|>\n<|im_start|>response_1\n1" in json.loads(prompt)


def test_samples_stop_when_nothing_can_change_the_winner(parts: Parts) -> None:
    serve(parts, {"match": "A's Response]\n<assistant>\nI do", "text": "<verdict>B</verdict>"},
          {"text": "<verdict>A</verdict>"}, protocol="sdrm")  # fmt: skip
    tenant = parts.tenant()
    job_id = parts.queue(tenant, 3, options={"samples": 5})
    parts.wait_until_ended(job_id)
    job = check_ended_job(parts.engine, job_id)
    assert (job["status"], job["calls"]) == ("completed", 3 * 6)  # of 3 * 10
    for result in results(parts, tenant, job_id):
        (opinion,) = result["verdict"]["opinions"]
        assert (opinion["winner"], opinion["stopped"], opinion["valid"]) == ("A", "certain", 6)


def test_traces_are_read_again_without_a_runtime(parts: Parts) -> None:
    serve(parts, {"match": "What is 0", "text": "All in all Assistant A."}, {"text": "<verdict>B</verdict>"},
          protocol="sdrm")  # fmt: skip
    tenant = parts.tenant()
    job_id = parts.queue(tenant, 3, options={"forced_verdict": False, "on_conflict": "abstain"})
    parts.wait_until_ended(job_id)
    assert check_ended_job(parts.engine, job_id)["status"] == "completed_with_errors"
    calls = len(parts.calls())

    request, metadata = read_reread(b'{"options": {"reading": "seed", "on_conflict": "tie"}, "metadata": {"of":  1}}')
    again = submit_reread(parts.engine, tenant, job_id, request, metadata, parts.fleet).job_id
    parts.wait_until_ended(again)
    job = check_ended_job(parts.engine, again)
    assert (job["status"], job["reread_of"], job["metadata_json"]) == ("completed", job_id, '{"of":  1}')
    assert (job["calls"], job["prompt_tokens"], len(parts.calls())) == (0, 0, calls)
    seen = results(parts, tenant, again)
    assert [result["custom_id"] for result in seen] == ["q0", "q1", "q2"]
    # each order prefers its own slot: the loose rule reads the first item too, and a conflict is a tie now
    assert [result["verdict"]["winner"] for result in seen] == ["tie"] * 3
    first, second = (
        parts.rows("SELECT * FROM trace WHERE job_id = :job_id ORDER BY seq, call", job_id=job)
        for job in (job_id, again)
    )
    assert [row["completion"] for row in first] == [row["completion"] for row in second]
    assert [row["outcome"] for row in first[:2]] == ["unparseable"] * 2
    assert [row["outcome"] for row in second[:2]] == ["decided"] * 2
    assert second[0]["reading"]["protocol"] == "sdrm/1"

    thrice = submit_reread(parts.engine, tenant, again, RereadRequest(), "{}", parts.fleet).job_id
    parts.wait_until_ended(thrice)
    check_ended_job(parts.engine, thrice)
    assert [result["verdict"] for result in results(parts, tenant, thrice)] == [result["verdict"] for result in seen]


def test_what_cannot_be_read_again(parts: Parts) -> None:
    tenant = parts.tenant()
    job_id = parts.queue(tenant, 1)
    with pytest.raises(Conflict):
        submit_reread(parts.engine, tenant, job_id, RereadRequest(), "{}", parts.fleet)
    with pytest.raises(NotFound):
        submit_reread(parts.engine, make_tenant(parts.engine, "umbrella"), job_id, RereadRequest(), "{}", parts.fleet)
    for body, pointer in (
        (b'{"options": {"samples": 2}}', "/options/samples"),
        (b'{"items": []}', "/items"),
        (b'{"options": {"decide": "coin"}}', "/options/decide"),
    ):
        with pytest.raises(Invalid) as caught:
            read_reread(body)
        assert [fault.pointer for fault in caught.value.faults] == [pointer]


def test_items_that_were_never_heard_have_expired_when_read_again(parts: Parts) -> None:
    serve(parts, {"text": "<verdict>A</verdict>", "latency_s": 0.5}, protocol="sdrm")
    tenant = parts.tenant()
    job_id = parts.queue(tenant, 200)
    parts.wait_until_heard(job_id, 1)
    with transaction(parts.engine) as connection:
        cancel(connection, tenant, job_id, "http://assizes.test")
    parts.wait_until_ended(job_id)
    source = check_ended_job(parts.engine, job_id)
    again = submit_reread(parts.engine, tenant, job_id, RereadRequest(), "{}", parts.fleet).job_id
    parts.wait_until_ended(again)
    job = check_ended_job(parts.engine, again)
    assert (job["status"], job["succeeded"], job["expired"]) == ("expired", source["succeeded"], source["cancelled"])
    assert {result["status"] for result in results(parts, tenant, again)} <= {ItemStatus.SUCCEEDED, ItemStatus.EXPIRED}
