"""Documentation, alerts and Compose name the metrics that the code has."""

import pkgutil
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from prometheus_client import Metric

from api.metrics import Facts, Metrics
from services.jobs.census import Census
from services.webhooks.queries import Backlog
from workers import maintenance
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


def intervals() -> dict[str, float]:
    """Every chore there is, and the seconds between two runs of it."""
    modules = (
        import_module(f"{maintenance.__name__}.{found.name}") for found in pkgutil.iter_modules(maintenance.__path__)
    )
    things = (thing for module in modules for thing in vars(module).values() if isinstance(thing, type))
    named = {thing.__name__: vars(thing).get("interval") for thing in things}
    return {name: interval for name, interval in named.items() if isinstance(interval, float)}


def looked_after(alert: str) -> set[str]:
    """The chores that an alert is about."""
    matched = re.search(r'\{chore(=~|!~)"(.+?)"\}', alerts()[alert])
    assert matched
    return {chore for chore in intervals() if bool(re.fullmatch(matched[2], chore)) is (matched[1] == "=~")}


def bound(alert: str) -> int:
    """What an alert's expression is compared with."""
    return int(alerts()[alert].rpartition(" > ")[2])


def test_each_chore_has_an_alert_that_leaves_it_the_time_between_its_runs() -> None:
    often = {chore for chore, interval in intervals().items() if 2 * interval < bound("AssizesChoreStands")}
    assert {"Rescuer", "Courier"} <= often
    assert looked_after("AssizesChoreStands") == often
    hourly = intervals().keys() - often
    assert {"Pruner", "PartitionMaker"} <= hourly
    assert looked_after("AssizesHourlyChoreStands") == looked_after("AssizesHourlyChoreFails") == hourly
    assert all(2 * intervals()[chore] < bound("AssizesHourlyChoreStands") for chore in hourly)


def test_maintenances_own_chunks_are_not_looked_for_among_the_running() -> None:
    assert alerts()["AssizesNothingRuns"].startswith('assizes_queued_chunks{model!="cpu"} > 0 and')
    assert alerts()["AssizesNothingSettled"].startswith('assizes_queued_chunks{model="cpu"} > 0 unless')


def test_compose_shows_metrics_and_publishes_none_but_the_apis() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    ours = {name: service for name, service in services.items() if "ASSIZES_FLEET" in service.get("environment", {})}
    assert {"api", "maintenance", "sdrm-4b"} <= ours.keys()
    assert {service["environment"]["ASSIZES_METRICS_PORT"] for service in ours.values()} == {"9100"}
    assert [name for name, service in services.items() if "ports" in service] == ["api"]
