"""`python -m embedded demo`: the main job, from submission to report and webhook, as a newcomer sees it."""

import sys
from pathlib import Path

import pytest

from embedded import models
from embedded.places import CHECKOUT
from embedded.processes import run
from tests.integration.test_embedded_stack import left_of


def demo(home: Path, *arguments: str) -> list[str]:
    """Run it to its end; the lines that it printed."""
    command = [sys.executable, "-m", "embedded", "demo", "--home", str(home), *arguments]
    printed = run("the demo", command, cwd=CHECKOUT)
    assert left_of(home) == []
    return printed.splitlines()


@pytest.mark.sglang
def test_on_real_parts(tmp_path: Path) -> None:
    lines = demo(tmp_path / "home")
    text = "\n".join(lines)
    assert "completed: 24 of 24 judged" in text
    assert "## Against human labels" in lines
    assert "48 calls" in text
    assert "webhook: job.completed arrived and its signature was verified" in lines
    assert "scripted" not in text


def test_with_the_scripted_runtime_every_line_says_so(tmp_path: Path) -> None:
    models.make("scripted")  # set-up, which says what it makes, is not part of the demo
    lines = demo(tmp_path / "home", "--runtime", "scripted")
    assert all(line.startswith("[scripted runtime]") for line in lines)
    assert "[scripted runtime] webhook: job.completed arrived and its signature was verified" in lines
