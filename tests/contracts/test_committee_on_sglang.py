"""Reappraising on real SGLangs: a small model writes, random reward models choose, and a restart changes no choice."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import embedded
from embedded import models
from services.foundation.fleet import FleetModel
from services.jobs.reappraise import asked_about
from services.reappraisal.committee import Rule, assess, choose
from tests.committees import results
from tests.contracts.server import CONTEXT, FLOAT32, Server
from tests.contracts.test_classifier import ROUNDING, assert_moved_alike
from tests.invariants import check_ended_job
from tests.parts import Parts
from workers.runtime.launch import LaunchedRuntime

SAMPLE = Path(embedded.__file__).with_name("scenarios.jsonl")
ITEMS = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
WRITER, RESTARTS, STAYS = "smollm2", "tiny-rm-0", "tiny-rm-1"  # as they are served
WITHIN = Rule({RESTARTS: 1.0, STAYS: 1.0}, "group")
PATIENCE_S = 600.0  # on a busy machine a server takes minutes to start
SCORE_ROUNDING = 1e-5  # of scores, in standard deviations of the anchors'; measured: 8e-7

FleetWith = Callable[[Server], str]


@pytest.fixture
def fleet_with(parts: Parts, smollm2: FleetModel, smollm2_server: LaunchedRuntime, sglang_python: Path) -> FleetWith:
    """A function that gives the fleet file of a writer and two reward models, of which `STAYS` is launched."""
    stays = str(models.make("tiny-rm-1"))
    launch = ["--device", "cpu", "--max-total-tokens", str(2 * CONTEXT), "--sleep-on-idle", *FLOAT32]

    def fleet(restarts: Server) -> str:
        return f"""
[models.{WRITER}]
protocol = "reappraisal"
protocol_options = {{ thinks = false }}
sampling = {{ max_tokens = 64 }}
weights = {json.dumps(smollm2.weights)}
context_length = {smollm2.context_length}
url = "{smollm2_server.url}"

[models.{RESTARTS}]
protocol = "reward"
weights = {json.dumps(str(restarts.weights))}
context_length = {CONTEXT}
url = "{restarts.url}"

[models.{STAYS}]
protocol = "reward"
weights = {json.dumps(stays)}
context_length = {CONTEXT}
gpus = 0
python = {json.dumps(str(sglang_python))}
launch = {json.dumps(launch)}

[committees.within]
members = ["{RESTARTS}", "{STAYS}"]
normalise = "group"

[committees.anchored]
members = ["{RESTARTS}", "{STAYS}"]
"""

    return fleet


@pytest.mark.slow
def test_a_restarted_member_has_another_bias_and_the_committee_chooses_the_same(
    parts: Parts,
    fleet_with: FleetWith,
    real_classifier: Server,
    restarted_classifier: Server,
    sglang_environment: dict[str, str],
) -> None:
    tenant = parts.tenant()

    def ended(items: Sequence[dict[str, Any]], **request: Any) -> list[dict[str, Any]]:
        job_id = parts.queue(tenant, items, **request)
        parts.wait_until_ended(job_id, PATIENCE_S)
        assert check_ended_job(parts.engine, job_id)["status"] == "completed"
        return results(parts, tenant, job_id)

    parts.fleet_file.write_text(fleet_with(real_classifier), encoding="utf-8")
    parts.settings["RUNTIME_LOGS"] = str(parts.folder)
    parts.maintenance()
    launching = {**parts.environment, **sglang_environment}
    parts.start("worker", "workers", "gpu", "--model", STAYS, env=launching)
    parts.worker(WRITER)
    restarts = parts.worker(RESTARTS)

    options = {"candidates": 2, "gate_retries": 8, "committee": "within"}
    job = {"kind": "reappraisal", "model": WRITER, "options": options}
    written = [line["reappraisal"] for line in ended(ITEMS[:2], **job)]
    pools = [[line["candidates"][place]["text"] for place in line["eligible"]] for line in written]
    texts = list(to_score(pools))
    before = ended(texts, kind="scoring", committee="anchored")
    restarts.stop()
    parts.fleet_file.write_text(fleet_with(restarted_classifier), encoding="utf-8")
    parts.worker(RESTARTS)
    after = ended(texts, kind="scoring", committee="anchored")

    assert raw(after, STAYS) == pytest.approx(raw(before, STAYS), abs=ROUNDING)
    assert_moved_alike(raw(before, RESTARTS), raw(after, RESTARTS))
    assert [line["score"] for line in after] == pytest.approx([line["score"] for line in before], abs=SCORE_ROUNDING)
    for line, again in zip(before, after, strict=True):
        assert line["epochs"][STAYS] == again["epochs"][STAYS]
        assert line["epochs"][RESTARTS] != again["epochs"][RESTARTS]

    def best(lines: list[dict[str, Any]], item: dict[str, Any]) -> str:
        of_item = [line for line in lines if line["custom_id"].startswith(item["custom_id"])]
        return str(texts[max(of_item, key=lambda line: line["score"])["seq"]]["response"])

    for item in ITEMS:
        assert best(after, item) == best(before, item)
    for chosen, pool, start in zip(written, pools, (0, len(pools[0])), strict=True):
        assert chosen["text"] == chosen["candidates"][chosen["selected"]]["text"]
        lines = after[start : start + len(pool)]
        picked = choose(assess({name: raw(lines, name) for name in (RESTARTS, STAYS)}, WITHIN, None))
        assert picked is not None
        assert pool[picked] == chosen["text"]


def to_score(pools: list[list[str]]) -> Iterator[dict[str, Any]]:
    """What was written for the first scenarios, then all baselines, each as a committee is shown it that chooses."""
    written = [(item, text) for item, pool in zip(ITEMS, pools, strict=False) for text in pool]
    given = [(item, baseline["content"]) for item in ITEMS for baseline in item["baseline"]]
    for number, (item, text) in enumerate([*written, *given]):
        context = [{"role": turn.role, "content": turn.content} for turn in asked_about(item["scenario"])]
        yield {"custom_id": f"{item['custom_id']}-{number}", "context": context, "response": text}


def raw(lines: list[dict[str, Any]], member: str) -> list[float]:
    """A member's raw scores."""
    return [line["scores"][member]["raw"] for line in lines]
