"""Reappraising on real SGLangs: a small model writes, random reward models choose, and a restart changes no choice."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import embedded
from embedded import models
from embedded.processes import Child
from services.foundation.fleet import FleetModel
from services.jobs.reappraise import asked_about
from services.reappraisal.committee import Rule, assess, choose
from tests.committees import results
from tests.contracts.server import CONTEXT, FLOAT32, Server
from tests.invariants import check_ended_job
from tests.parts import Parts
from workers.runtime.launch import LaunchedRuntime

SAMPLE = Path(embedded.__file__).with_name("scenarios.jsonl")
ITEMS = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
WRITER, STAYS, RESTARTS = "smollm2", "tiny-rm-0", "tiny-rm-1"  # as they are served
RULE = Rule({STAYS: 1.0, RESTARTS: 1.0}, "group")
PATIENCE_S = 300.0  # on a busy machine a server takes minutes to start
ROUNDING = 1e-5  # of raw scores in float32, whatever they are batched with
SPREAD = 1e-3  # of scores: rounding over the small spread of random models on the anchors


@pytest.fixture
def start_member(
    parts: Parts,
    smollm2: FleetModel,
    smollm2_server: LaunchedRuntime,
    real_classifier: Server,
    sglang_python: Path,
    sglang_environment: dict[str, str],
) -> Callable[[], Child]:
    """A fleet that reappraises, started but for one reward model, which the function starts with its worker."""
    launch = ["--device", "cpu", "--max-total-tokens", str(2 * CONTEXT), "--sleep-on-idle", *FLOAT32]
    parts.fleet_file.write_text(
        f"""
[models.{WRITER}]
protocol = "reappraisal"
protocol_options = {{ thinks = false }}
sampling = {{ max_tokens = 64 }}
weights = {json.dumps(smollm2.weights)}
context_length = 8192
url = "{smollm2_server.url}"

[models.{STAYS}]
protocol = "reward"
weights = {json.dumps(str(real_classifier.weights))}
context_length = {CONTEXT}
url = "{real_classifier.url}"

[models.{RESTARTS}]
protocol = "reward"
weights = {json.dumps(str(models.make(RESTARTS)))}
context_length = {CONTEXT}
gpus = 0
python = {json.dumps(str(sglang_python))}
launch = {json.dumps(launch)}

[committees.within]
members = ["{STAYS}", "{RESTARTS}"]
normalise = "group"

[committees.anchored]
members = ["{STAYS}", "{RESTARTS}"]
""",
        encoding="utf-8",
    )
    parts.settings["RUNTIME_LOGS"] = str(parts.folder)
    parts.maintenance()
    parts.worker(WRITER)
    parts.worker(STAYS)

    def start() -> Child:
        environment = {**parts.environment, **sglang_environment}
        return parts.start("member", "workers", "gpu", "--model", RESTARTS, env=environment)

    return start


def test_a_restarted_member_has_another_bias_and_chooses_the_same(
    parts: Parts, start_member: Callable[[], Child]
) -> None:
    tenant = parts.tenant()

    def ended(**request: Any) -> list[dict[str, Any]]:
        job_id = parts.queue(tenant, **request)
        parts.wait_until_ended(job_id, PATIENCE_S)
        assert check_ended_job(parts.engine, job_id)["status"] == "completed"
        return results(parts, tenant, job_id)

    member = start_member()
    options = {"candidates": 2, "gate_retries": 8, "committee": "within"}
    lines = ended(kind="reappraisal", model=WRITER, items=ITEMS[:2], options=options)
    written = [line["reappraisal"] for line in lines]
    texts = [
        (item, one["candidates"][place]["text"])
        for item, one in zip(ITEMS[:2], written, strict=True)
        for place in one["eligible"]
    ]
    texts += [(item, baseline["content"]) for item in ITEMS for baseline in item["baseline"]]
    items = [
        {
            "custom_id": str(number),
            "context": [{"role": turn.role, "content": turn.content} for turn in asked_about(item["scenario"])],
            "response": response,
        }
        for number, (item, response) in enumerate(texts)
    ]
    before = ended(kind="scoring", committee="anchored", items=items)
    member.stop()
    start_member()
    after = ended(kind="scoring", committee="anchored", items=items)

    moved = {
        name: [two["scores"][name]["raw"] - one["scores"][name]["raw"] for one, two in zip(before, after, strict=True)]
        for name in (STAYS, RESTARTS)
    }
    assert moved[STAYS] == pytest.approx([0.0] * len(texts), abs=ROUNDING)
    assert moved[RESTARTS] == pytest.approx([moved[RESTARTS][0]] * len(texts), abs=ROUNDING)
    assert abs(moved[RESTARTS][0]) > 10 * ROUNDING
    assert [line["score"] for line in after] == pytest.approx([line["score"] for line in before], abs=SPREAD)
    assert best(after) == best(before)
    assert {line["epochs"][STAYS] for line in after} == {line["epochs"][STAYS] for line in before}
    assert {line["epochs"][RESTARTS] for line in after}.isdisjoint(line["epochs"][RESTARTS] for line in before)

    # the reappraisals' choices, within their candidates, come out the same by either start's scores
    place = 0
    for one in written:
        count = len(one["eligible"])
        for lines in (before, after):
            raw = {name: [line["scores"][name]["raw"] for line in lines[place : place + count]] for name in moved}
            chosen = choose(assess(raw, RULE, None)) if count > 1 else 0
            assert chosen is not None
            assert one["eligible"][chosen] == one["selected"]
        place += count


def best(lines: list[dict[str, Any]]) -> str:
    """The text with the best score, by its id."""
    best_of_all: str = max(lines, key=lambda line: line["score"])["custom_id"]
    return best_of_all
