"""The Compose file is valid and agrees with fleet, settings and Dockerfile. Nothing here runs a container."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.foundation.fleet import Fleet, load_fleet
from services.foundation.settings import SECRETS, Settings
from services.jobs.request import check_fleet

ROOT = Path(__file__).resolve().parents[3]
PROFILE = "reappraisal-committee"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return document


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return load_fleet(ROOT / "fleet.toml")


def check_against_the_specification(path: Path) -> subprocess.CompletedProcess[str]:
    """Validate against the Compose specification's own JSON schema, which check-jsonschema ships."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", path]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_compose_file_is_valid() -> None:
    run = check_against_the_specification(ROOT / "docker-compose.yml")
    assert run.returncode == 0, run.stdout + run.stderr


def test_an_invalid_compose_file_is_noticed(tmp_path: Path) -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    assert "stop_grace_period: 90s" in text
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(text.replace("stop_grace_period: 90s", "stop_grace_periods: 90s"), "utf-8")
    run = check_against_the_specification(wrong)
    assert run.returncode == 1
    assert "stop_grace_periods" in run.stdout


def test_every_image_is_pinned_by_its_tag(compose: dict[str, Any]) -> None:
    images = {service["image"] for service in compose["services"].values()}
    images |= set(re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text("utf-8"), re.M))
    assert [image for image in images if not re.search(r":v?\d", image)] == []


def test_every_model_of_the_fleet_has_a_worker_with_its_gpus(compose: dict[str, Any], fleet: Fleet) -> None:
    devices = {}
    for name, service in compose["services"].items():
        if "deploy" in service:
            assert service["command"] == [name]
            (device,) = service["deploy"]["resources"]["reservations"]["devices"]
            devices[name] = len(device["device_ids"])
    assert devices == {name: model.gpus for name, model in fleet.models.items()}


def test_the_api_starts_with_this_fleet(fleet: Fleet) -> None:
    check_fleet(fleet)


def test_the_fleet_names_the_interpreter_that_the_image_makes(fleet: Fleet) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    for model in fleet.models.values():
        assert model.python is not None
        assert f"> {model.python} " in dockerfile


@pytest.mark.parametrize("profile", [None, PROFILE])
def test_workers_that_start_together_share_no_gpu(compose: dict[str, Any], profile: str | None) -> None:
    held = [
        device
        for service in compose["services"].values()
        if "deploy" in service and service.get("profiles", [profile]) == [profile]
        for device in service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
    ]
    assert held
    assert len(held) == len(set(held))


def test_the_committee_starts_as_a_whole(compose: dict[str, Any], fleet: Fleet) -> None:
    committee = [model for member in fleet.committees["reappraisal"].members for model in member.models]
    started = [name for name, service in compose["services"].items() if service.get("profiles") == [PROFILE]]
    assert sorted(started) == sorted(committee)


def test_weights_on_the_host_lie_in_the_volume(compose: dict[str, Any], fleet: Fleet) -> None:
    local = {name: model.weights for name, model in fleet.models.items() if model.weights.startswith("/")}
    assert local
    for name, weights in local.items():
        mounted = [volume.split(":")[1] for volume in compose["services"][name]["volumes"]]
        assert any(Path(weights).is_relative_to(place) for place in mounted)


def test_only_known_settings_are_set(compose: dict[str, Any]) -> None:
    known = {f"ASSIZES_{name.upper()}" for name in Settings.model_fields} | {f"ASSIZES_{s}_FILE" for s in SECRETS}
    given = {
        name
        for service in compose["services"].values()
        for name in service.get("environment", {})
        if name.startswith("ASSIZES_")
    }
    assert given
    assert given <= known


def test_no_secret_stands_in_the_file(compose: dict[str, Any]) -> None:
    for name, secret in compose["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
    for service in compose["services"].values():
        for variable in service.get("environment", {}):
            assert not re.search(r"(PASSWORD|TOKEN|SECRET|DATABASE_URL|REDIS_URL)$", variable), variable


def test_a_worker_is_given_longer_to_stop_than_it_drains(compose: dict[str, Any], fleet: Fleet) -> None:
    for name in fleet.models:
        service = compose["services"][name]
        assert int(service["stop_grace_period"].removesuffix("s")) > int(service["environment"]["ASSIZES_DRAIN"])


def test_redis_never_evicts_and_keeps_what_it_acknowledged(compose: dict[str, Any]) -> None:
    command = compose["services"]["redis"]["command"][-1]
    assert "--maxmemory-policy noeviction" in command
    assert "--appendonly yes" in command


def test_everything_the_images_copy_is_let_in() -> None:
    allowed = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    assert {"api", "services", "workers", "migrations", "alembic.ini", "requirements.lock"} <= allowed
