"""Documentation, alerts and Compose name the metrics that the code has."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from prometheus_client import Metric

from api.metrics import Facts, Metrics
from services.jobs.census import Census
from services.webhooks.queries import Backlog
from workers.maintenance.metrics import MaintenanceMetrics
from workers.metrics import WorkerMetrics

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
ROW = re.compile(r"^\| `(assizes_\w+)` \| (\w+) \| (\w+) \|.*\| .+ \|$", re.M)
NAME = re.compile(r"\bassizes_\w+")
SERIES = re.compile(r"_(bucket|count|sum)$")


def families(part: str) -> Iterable[Metric]:
    """What a part of the service shows."""
    match part:
        case "API":
            facts = Facts(Census({}, {}), Backlog(0, 0, 0))
            return [*Metrics().registry.collect(), *facts.collect()]
        case "worker":
            return WorkerMetrics("tiny").registry.collect()
        case _:
            return MaintenanceMetrics().registry.collect()


def shown(part: str) -> set[tuple[str, str, str]]:
    """Name, part and kind of everything a part shows of its own."""
    return {
        (f"{family.name}_total" if family.type == "counter" else family.name, part, family.type)
        for family in families(part)
        if family.name.startswith("assizes_")
    }


EVERYTHING = shown("API") | shown("worker") | shown("maintenance")
NAMES = {name for name, _, _ in EVERYTHING}


def test_the_table_lists_what_the_code_shows_and_nothing_else() -> None:
    assert set(ROW.findall(PAGE)) == EVERYTHING
    assert len(ROW.findall(PAGE)) == len(EVERYTHING)


def test_symptoms_are_read_from_metrics_that_exist() -> None:
    symptoms = PAGE.partition("### What to do when\n")[2].partition("\n## ")[0]
    named = set(NAME.findall(symptoms))
    assert len(symptoms.splitlines()) > 15
    assert len(named) > 15
    assert named <= NAMES


def alerts() -> dict[str, str]:
    """The example alerts' expressions."""
    document = yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text("utf-8"))
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    assert all(rule["labels"]["severity"] in ("page", "ticket") and rule["annotations"]["summary"] for rule in rules)
    return {rule["alert"]: rule["expr"] for rule in rules}


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_asks_for_metrics_that_exist(alert: str) -> None:
    expression = alerts()[alert]
    named = {SERIES.sub("", name) for name in NAME.findall(expression)}
    assert named <= NAMES
    assert named or expression.startswith("up{")
    assert expression.count("(") == expression.count(")")


def test_compose_shows_metrics_and_publishes_none_but_the_apis() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    ours = {name: service for name, service in services.items() if "ASSIZES_FLEET" in service.get("environment", {})}
    assert {"api", "maintenance", "sdrm-4b"} <= ours.keys()
    assert {service["environment"]["ASSIZES_METRICS_PORT"] for service in ours.values()} == {"9100"}
    assert [name for name, service in services.items() if "ports" in service] == ["api"]
