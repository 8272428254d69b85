"""A judge family that comes in a package of its own is installed, found by its name, and keeps to the contract."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embedded.places import CHECKOUT

PACKAGE = Path(__file__).with_name("assizes-referee")
ITEM = {
    "context": [{"role": "user", "content": "why\ud835?"}],
    "candidates": [{"content": "Paris."}, {"content": "Lyon."}],
}

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package is installed to, as pip does it, without a network."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--target", str(folder), str(PACKAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def run(site: Path) -> Run:
    """Runs `python -m ...` in the checkout with the package installed."""

    def run(*command: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        # A run of pytest inside pytest is one of its own.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.run(
            [sys.executable, "-m", *command],
            input=json.dumps(stdin),
            capture_output=True,
            encoding="utf-8",
            cwd=CHECKOUT,
            env=environment | {"PYTHONPATH": str(site)},
            check=False,
        )

    return run


def test_it_keeps_to_the_contract_of_families(run: Run) -> None:
    done = run("pytest", "-v", "-p", "no:cacheprovider", "tests/contracts/test_families.py", "-k", "referee")
    assert done.returncode == 0, done.stdout + done.stderr
    for test in ("golden_cases_say", "untouched", "reads_as_itself", "read_in_linear_time"):
        assert re.search(rf"{test}\[referee.*\] PASSED", done.stdout)


def test_it_can_be_asked(run: Run) -> None:
    done = run("services.judging", "ask", "--protocol", "referee", stdin=ITEM)
    system, user = json.loads(done.stdout)
    assert (system["role"], user["role"]) == ("system", "user")
    assert "Which answer serves the person who asked better?" in system["content"]
    assert "<user>\nwhy\ud835?\n</user>" in user["content"]
    assert user["content"].index("Paris.") < user["content"].index("Lyon.")


@pytest.mark.parametrize(
    ("choice", "outcome", "winner"),
    [("second", "decided", "B"), ("tie", "tie", "tie"), ("B", "unparseable", None)],
)
def test_it_reads(run: Run, choice: str, outcome: str, winner: str | None) -> None:
    line = {"id": 7, "completion": f"So: <choice>{choice}</choice>", "finish_reason": "stop"}
    done = run("services.judging", "read", "--protocol", "referee", stdin=line)
    reading = json.loads(done.stdout)
    assert (reading["id"], reading["outcome"], reading["winner"]) == (7, outcome, winner)


def test_without_the_package_there_is_no_such_family() -> None:
    command = [sys.executable, "-m", "services.judging", "read", "--protocol", "referee"]
    done = subprocess.run(command, input="", capture_output=True, text=True, cwd=CHECKOUT, check=False)
    assert done.returncode == 2
    assert "invalid choice: 'referee'" in done.stderr
