"""The import rules hold, and each of them notices a violation."""

import configparser
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("api", "services", "workers", "embedded")
CONTRACT = "importlinter:contract:"

# contract, file, the line that breaks it
PLANTS = [
    ("doors", "api/planted.py", "import workers"),
    ("doors", "workers/planted.py", "import api"),
    ("doors", "services/jobs/planted.py", "import api"),
    ("layers", "services/foundation/planted.py", "import services.contract"),
    ("layers", "services/jobs/planted.py", "import services.webhooks"),
    ("layers", "services/stats/planted.py", "import services.contract"),
    ("layers", "services/reappraisal/planted.py", "import services.judging"),
    ("layers", "services/reappraisal/planted.py", "import services.stats"),
    ("pure", "services/stats/planted.py", "import sqlalchemy"),
    ("pure", "services/reappraisal/planted.py", "import httpx"),
    ("pure", "services/judging/planted.py", "from services.models.job import Job"),
    ("protocols", "services/judging/protocols/sdrm/planted.py", "import services.judging.protocols.prompted"),
    ("embedded", "embedded/planted.py", "import services.foundation.database"),
    ("flask", "workers/planted.py", "from flask import Flask"),
    ("celery", "services/jobs/planted.py", "from celery import Celery"),
    ("celery", "api/planted.py", "import kombu"),
    ("celery", "services/foundation/planted.py", "import celery"),
    ("aiohttp", "services/jobs/planted.py", "import aiohttp"),
    ("aiohttp", "embedded/planted.py", "import aiohttp"),
    ("sglang", "workers/runtime/planted.py", "import sglang"),
    ("prometheus", "services/jobs/planted.py", "import prometheus_client"),
]


@pytest.fixture(scope="module")
def contracts() -> dict[str, str]:
    """The name of each contract by its identifier."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    return {s.removeprefix(CONTRACT): parser[s]["name"] for s in parser.sections() if s.startswith(CONTRACT)}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of our packages, to plant violations in."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def broken(tree: Path) -> set[str]:
    """The names of the contracts that the code in `tree` breaks."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]
    wide = {**os.environ, "COLUMNS": "300"}  # a verdict stays on the line of its contract
    run = subprocess.run(command, cwd=tree, env=wide, capture_output=True, text=True, check=False)
    verdicts = re.findall(r"^(.+) (KEPT|BROKEN)(?: \(.*\))?$", run.stdout, re.M)
    assert verdicts, run.stdout + run.stderr
    return {name for name, verdict in verdicts if verdict == "BROKEN"}


def test_every_rule_is_kept() -> None:
    assert broken(ROOT) == set()


@pytest.mark.parametrize(("contract", "file", "line"), PLANTS, ids=[f"{c}: {f}" for c, f, _ in PLANTS])
def test_a_planted_violation_breaks_its_rule_and_no_other(
    contract: str, file: str, line: str, contracts: dict[str, str], tree: Path
) -> None:
    (tree / file).write_text(f'"""Planted."""\n\n{line}\n')
    assert broken(tree) == {contracts[contract]}


def test_every_rule_has_a_planted_violation(contracts: dict[str, str]) -> None:
    assert {contract for contract, _, _ in PLANTS} == set(contracts)


def test_every_package_is_under_the_rules() -> None:
    ours = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert ours == set(PACKAGES)
    assert ours == set(parser["importlinter"]["root_packages"].split())
    assert ours == set(project["tool"]["mypy"]["packages"])


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_loaded_from_this_checkout(package: str) -> None:
    # an installed dependency with a top-level package of the same name would shadow ours
    origin = importlib.import_module(package).__file__
    assert origin is not None
    assert Path(origin).resolve().parent == ROOT / package
