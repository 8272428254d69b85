"""The embedded fleets: real and scripted they are the same models, and take the jobs that are shown on them."""

import json
from pathlib import Path

import pytest

from embedded.fleet import JUDGING, MODEL, REAPPRAISING, EmbeddedFleet, chosen
from embedded.reappraise import JOB
from embedded.scripted.script import Order, Script
from services.foundation.fleet import Fleet, load_fleet
from services.jobs.request import check_fleet, read_job


def loaded(text: str, folder: Path) -> Fleet:
    file = folder / "fleet.toml"
    file.write_text(text, encoding="utf-8")
    fleet = load_fleet(file)
    check_fleet(fleet)
    return fleet


def stood_in(fleet: EmbeddedFleet) -> str:
    return fleet.scripted({name: f"http://127.0.0.1:{number}" for number, name in enumerate(fleet.stand_ins(), 1)})


@pytest.mark.sglang
@pytest.mark.parametrize("fleet", [JUDGING, REAPPRAISING])
def test_it_asks_stand_ins_as_it_asks_the_models_that_workers_launch(fleet: EmbeddedFleet, tmp_path: Path) -> None:
    real, scripted = loaded(fleet.real(), tmp_path), loaded(stood_in(fleet), tmp_path)
    assert real.committees == scripted.committees
    served = {"weights", "url", "gpus", "python", "launch"}
    for name, model in real.models.items():
        assert model.model_dump(exclude=served) == scripted.models[name].model_dump(exclude=served)
        assert model.url is None
        assert (Path(model.weights) / "config.json").exists()


def test_the_reward_models_have_stand_ins_of_their_own(tmp_path: Path) -> None:
    fleet = loaded(stood_in(REAPPRAISING), tmp_path)
    assert len(REAPPRAISING.stand_ins()) == len({model.url for model in fleet.models.values()}) == 3
    seeds = [
        arguments[arguments.index("--seed") :]
        for arguments in REAPPRAISING.stand_ins().values()
        if "--seed" in arguments
    ]
    assert len(seeds) == 2
    assert seeds[0] != seeds[1]


def test_the_job_that_is_shown_is_one(tmp_path: Path) -> None:
    submission = read_job(json.dumps(JOB).encode(), loaded(stood_in(REAPPRAISING), tmp_path))
    assert submission.kind == JOB["kind"]


def test_a_fleet_is_named_or_a_file() -> None:
    assert chosen("judging") is JUDGING
    assert chosen("reappraising") is REAPPRAISING
    assert chosen("./reappraising") == Path("reappraising")


@pytest.mark.parametrize("fleet", [JUDGING, REAPPRAISING])
def test_the_first_model_of_a_shipped_fleet_judges_for_the_demo_takes_that_one(
    fleet: EmbeddedFleet, tmp_path: Path
) -> None:
    job = {"kind": "judgement", "judges": [next(iter(fleet.models))]}
    assert read_job(json.dumps(job).encode(), loaded(stood_in(fleet), tmp_path)).terms.judges == (MODEL,)


def test_a_stand_in_never_runs_out_of_texts() -> None:
    script = Script()
    script.rules = [Order.read(dict(order)) for order in REAPPRAISING.orders]
    asked = "Limit your response to two sentences."
    written = [(script.rule(asked) or Order()).text for _ in range(200)]
    assert None not in written
    assert len(set(written[:3])) == 3
    assert len(set(written[100:])) == 1
