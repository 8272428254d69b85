"""Jobs that write reappraisals or score texts: settings and items, strict and resolved against the fleet."""

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from services.contract.options import ReappraisalSettings, ScoringSettings
from services.foundation.errors import Fault, Invalid, Misconfigured
from services.foundation.fleet import Fleet, load_fleet
from services.jobs.intake import Item, ItemReader, Upload
from services.jobs.items import Responses, Scenarios, Shape
from services.jobs.request import check_fleet, read_job, read_job_with_items
from services.judging.registry import protocol
from services.reappraisal.anchors import load_anchors
from services.vocabulary import JobKind, Mode

MODELS: dict[str, dict[str, Any]] = {
    "writer": {"protocol": "reappraisal"},
    "greedy": {"protocol": "reappraisal", "sampling": {"temperature": 0.0}},
    "rm-0": {"protocol": "reward"},
    "rm-1": {"protocol": "reward"},
    "grades": {"protocol": "prompted", "protocol_options": {"grades": 5}, "options": {"mode": "direct"}},
    "judge": {"protocol": "sdrm"},
}
COMMITTEES: dict[str, dict[str, Any]] = {
    "mixed": {"members": ["grades", {"name": "rm", "models": ["rm-0", "rm-1"]}], "weights": {"rm": 2.0}},
    "within": {"members": ["rm-0", "rm-1"], "normalise": "group"},
}


def fleet(committees: dict[str, dict[str, Any]] = COMMITTEES) -> Fleet:
    return Fleet.model_validate(
        {
            "models": {name: {"name": name, "weights": "w", **entry} for name, entry in MODELS.items()},
            "committees": {name: {"name": name, **entry} for name, entry in committees.items()},
        }
    )


FLEET = fleet()
WRITE: dict[str, Any] = {"kind": "reappraisal", "model": "writer"}
SCENARIO = {"custom_id": "s", "scenario": "My friend did not call."}
RESPONSE = {"custom_id": "r", "context": [{"role": "user", "content": "Why?"}], "response": "So."}


def read(**changes: Any) -> Any:
    return read_job(json.dumps({**WRITE, **changes}).encode(), FLEET)


def refused(**changes: Any) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        read(**changes)
    return [(fault.code, fault.pointer) for fault in caught.value.faults]


def test_the_least_that_a_reappraisal_says() -> None:
    terms = read().terms
    assert isinstance(terms.settings, ReappraisalSettings)
    assert (terms.settings.model, terms.settings.candidates, terms.settings.gate_retries) == ("writer", 1, 2)
    assert (terms.settings.committee, terms.settings.compare, terms.judges, terms.anchors) == (None, None, (), None)
    assert terms.calls_per_item(1) == {"reappraise": {"writer": 3}, "score": {}, "compare": {}}
    assert terms.settings.sampling.model_dump() == asdict(protocol("reappraisal").sampling)


def test_a_committee_is_kept_as_it_is() -> None:
    options = {"candidates": 4, "committee": "mixed", "compare": "judge", "compare_options": {"samples": 2}}
    terms = read(options=options).terms
    committee = terms.settings.committee
    assert committee is not None
    assert committee.members == {"grades": ["grades"], "rm": ["rm-0", "rm-1"]}
    assert committee.models == ("grades", "rm-0", "rm-1")
    assert (committee.weights, committee.normalise) == ({"grades": 1.0, "rm": 2.0}, "reference")
    assert committee.judges.keys() == {"grades"}
    assert (committee.judges["grades"].mode, committee.judges["grades"].early_stop) == (Mode.DIRECT, "never")
    assert committee.anchors == load_anchors(None).sha256
    assert terms.anchors is not None
    assert terms.judges == ("judge",)
    assert terms.settings.judges["judge"].samples == 2
    assert terms.calls_per_item(5) == {
        "reappraise": {"writer": 12},  # 4 texts, each written up to 3 times
        "score": {"grades": 4, "rm-0": 4, "rm-1": 4},
        "compare": {"judge": 16},  # 4 baselines against the chosen text, in both orders, 2 samples each
    }
    within = read(options={"committee": "within", "candidates": 2}).terms
    assert (within.settings.committee.anchors, within.anchors) == (None, None)


def test_what_draws_nothing_is_not_written_twice() -> None:
    assert read(model="greedy").terms.settings.gate_retries == 0
    assert read(model="greedy", options={"sampling": {"temperature": 0.5}}).terms.settings.gate_retries == 2
    assert refused(model="greedy", options={"candidates": 2}) == [("invalid_value", "/options/candidates")]
    assert refused(model="greedy", options={"gate_retries": 1}) == [("invalid_value", "/options/gate_retries")]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"model": "nobody"}, ("unknown_model", "/model")),
        ({"model": "judge"}, ("unsuitable_model", "/model")),
        ({"model": "rm-0"}, ("unsuitable_model", "/model")),
        ({"judges": ["judge"]}, ("unknown_field", "/judges")),
        ({"options": {"committee": "nobody"}}, ("unknown_committee", "/options/committee")),
        ({"options": {"compare": "nobody"}}, ("unknown_model", "/options/compare")),
        ({"options": {"compare": "writer"}}, ("unsuitable_model", "/options/compare")),
        ({"options": {"compare_options": {"samples": 2}}}, ("invalid_value", "/options/compare_options")),
        (
            {"options": {"compare": "judge", "compare_options": {"margin": "nvidia"}}},
            ("invalid_value", "/options/compare_options/margin"),
        ),
        (
            {"options": {"compare": "judge", "compare_options": {"decide": "scores"}}},
            ("invalid_value", "/options/compare_options/decide"),
        ),
        (
            {"options": {"compare": "judge", "compare_options": {"pairs": "circular"}}},
            ("unknown_field", "/options/compare_options/pairs"),
        ),
        ({"options": {"candidates": 17}}, ("invalid_value", "/options/candidates")),
        ({"options": {"candidates": 0}}, ("invalid_value", "/options/candidates")),
        ({"options": {"gate_retries": 9}}, ("invalid_value", "/options/gate_retries")),
        ({"options": {"orders": "both"}}, ("unknown_field", "/options/orders")),
        ({"options": {"selected_on": ["a"]}}, ("invalid_value", "/options/selected_on")),
    ],
)
def test_every_fault_has_its_pointer_and_code(changes: dict[str, Any], fault: tuple[str, str]) -> None:
    assert refused(**changes) == [fault]


def test_a_scoring_job_needs_a_committee_that_normalises_by_reference() -> None:
    sent = {"kind": "scoring", "committee": "mixed"}
    terms = read_job(json.dumps(sent).encode(), FLEET).terms
    assert isinstance(terms.settings, ScoringSettings)
    assert terms.calls_per_item(1) == {"score": {"grades": 1, "rm-0": 1, "rm-1": 1}}
    assert (terms.judges, terms.anchors) == ((), load_anchors(None))
    for name, code in (("within", "unsuitable_committee"), ("nobody", "unknown_committee")):
        with pytest.raises(Invalid) as caught:
            read_job(json.dumps(sent | {"committee": name}).encode(), FLEET)
        assert [(fault.code, fault.pointer) for fault in caught.value.faults] == [(code, "/committee")]


@pytest.mark.parametrize("judge", ["writer", "rm-0"])
def test_what_judges_nothing_is_no_judge(judge: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(json.dumps({"kind": "judgement", "judges": ["judge", judge]}).encode(), FLEET)
    assert [(fault.code, fault.pointer) for fault in caught.value.faults] == [("unsuitable_model", "/judges/1")]


@pytest.mark.parametrize("member", ["judge", "writer"])
def test_a_committee_has_members_that_score(member: str) -> None:
    with pytest.raises(Misconfigured, match=f"cannot have {member}"):
        check_fleet(fleet({"bad": {"members": [member]}}))
    check_fleet(FLEET)


FILE = """
[models.rm]
protocol = "reward"
weights = "w"
"""


@pytest.mark.parametrize(
    ("committee", "told"),
    [
        ('members = ["rm", "other"]', "no such model: other"),
        ('members = ["rm", "rm"]', "stands twice"),
        ('members = ["rm", { name = "two", models = ["rm"] }]', "stands twice"),
        ("members = []", "at least 1"),
        ('members = ["rm"]\nweights = { other = 1.0 }', "other"),
        ('members = ["rm"]\nweights = { rm = 0.0 }', "greater than 0"),
        ('members = ["rm"]\nnormalise = "rank"', "normalise"),
        ('members = ["rm"]\nnormalise = "group"\nanchors = "a.jsonl"', "needs no anchors"),
    ],
)
def test_a_committee_of_a_fleet_file_is_well_formed(tmp_path: Path, committee: str, told: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(f"{FILE}[committees.c]\n{committee}\n")
    with pytest.raises(Misconfigured, match=told):
        load_fleet(file)
    file.write_text(f'{FILE}[committees.c]\nmembers = ["rm"]\nanchors = "a.jsonl"\n')
    assert load_fleet(file).committees["c"].anchors == tmp_path / "a.jsonl"


def one(shape: Shape, item: dict[str, Any]) -> Item | Fault:
    (read,) = Upload(io.BytesIO(json.dumps(item).encode()), ItemReader(shape))
    return read


@pytest.mark.parametrize(
    ("baseline", "systems"),
    [
        (None, []),
        ("They were busy.", [None]),
        ({"content": "They were busy."}, [None]),
        ({"content": "They were busy.", "system": "gpt"}, ["gpt"]),
        (["one", {"content": "two", "system": "b"}], [None, "b"]),
    ],
)
def test_a_scenario_and_its_baselines(baseline: Any, systems: list[str | None]) -> None:
    item = one(Scenarios(), SCENARIO | {"baseline": baseline, "cluster": "v", "metadata": {"a": 1}})
    assert isinstance(item, Item)
    assert json.loads(item.facets) == {"label": None, "cluster": "v", "systems": systems}
    assert item.texts == 1 + len(systems)


@pytest.mark.parametrize(
    ("shape", "item", "code", "pointer"),
    [
        (Scenarios(), {"custom_id": "s"}, "missing_field", "/scenario"),
        (Scenarios(), SCENARIO | {"scenario": " \n"}, "invalid_value", "/scenario"),
        (Scenarios(), SCENARIO | {"scenario": 1}, "invalid_value", "/scenario"),
        (Scenarios(), SCENARIO | {"context": []}, "unknown_field", "/context"),
        (Scenarios(), SCENARIO | {"label": "A"}, "unknown_field", "/label"),
        (Scenarios(), SCENARIO | {"baseline": 1}, "invalid_value", "/baseline"),
        (Scenarios(), SCENARIO | {"baseline": []}, "invalid_value", "/baseline"),
        (Scenarios(), SCENARIO | {"baseline": ["a"] * 16}, "invalid_value", "/baseline"),
        (Scenarios(), SCENARIO | {"baseline": ["a", None]}, "invalid_value", "/baseline/1"),
        (Scenarios(), SCENARIO | {"baseline": [{"content": 1}]}, "invalid_value", "/baseline/0/content"),
        (Scenarios(), SCENARIO | {"baseline": {"content": "a", "system": 1}}, "invalid_value", "/baseline/system"),
        (Scenarios(), SCENARIO | {"baseline": {"content": "a", "by": "b"}}, "invalid_value", "/baseline/by"),
        (Scenarios(compared=True), SCENARIO, "missing_field", "/baseline"),
        (Scenarios(), SCENARIO | {"cluster": 1}, "invalid_value", "/cluster"),
        (Responses(), {"custom_id": "r", "response": "So."}, "missing_field", "/context"),
        (Responses(), RESPONSE | {"response": None}, "invalid_value", "/response"),
        (Responses(), RESPONSE | {"context": []}, "invalid_value", "/context"),
        (Responses(), RESPONSE | {"system": 1}, "invalid_value", "/system"),
        (Responses(), RESPONSE | {"candidates": []}, "unknown_field", "/candidates"),
    ],
)
def test_what_is_wrong_with_an_item_has_its_place(shape: Shape, item: dict[str, Any], code: str, pointer: str) -> None:
    fault = one(shape, item)
    assert isinstance(fault, Fault)
    assert (fault.code, fault.pointer, fault.line) == (code, pointer, 1)


@pytest.mark.parametrize("first", [True, False])
def test_items_of_a_body_are_read_by_its_kind_wherever_that_stands(first: bool) -> None:
    kind, items = {"kind": "scoring", "committee": "mixed"}, {"items": [RESPONSE]}
    sent = json.dumps(kind | items if first else items | kind).encode()
    job, read = read_job_with_items(sent, FLEET)
    assert job.kind is JobKind.SCORING
    (item,) = read
    assert isinstance(item, Item)
    assert json.loads(item.input) == RESPONSE


def test_items_of_a_body_must_fit_the_job() -> None:
    sent = {
        **WRITE,
        "options": {"compare": "judge"},
        "items": [SCENARIO | {"baseline": "b"}, SCENARIO, {"custom_id": 1}],
    }
    _, items = read_job_with_items(json.dumps(sent).encode(), FLEET)
    assert [(fault.code, fault.pointer) for fault in items if isinstance(fault, Fault)] == [
        ("missing_field", "/items/1/baseline"),
        ("missing_field", "/items/2/scenario"),
    ]
