"""`python -m embedded demo` and `reappraise`: a job from submission to report and webhook, as a newcomer sees it."""

import sys
from pathlib import Path

import pytest

from embedded import models
from embedded.places import CHECKOUT
from embedded.processes import run
from services.contract.jobs import NOT_CLINICAL
from tests.integration.test_embedded_stack import left_of

WEBHOOK = "webhook: job.completed arrived and its signature was verified"


def shown(command: str, home: Path, *arguments: str) -> list[str]:
    """Run it to its end; the lines that it printed."""
    printed = run(
        f"the {command}",
        [sys.executable, "-m", "embedded", command, "--home", str(home), *arguments],
        cwd=CHECKOUT,
    )
    assert left_of(home) == []
    return printed.splitlines()


@pytest.mark.sglang
def test_on_real_parts(tmp_path: Path) -> None:
    lines = shown("demo", tmp_path / "home")
    text = "\n".join(lines)
    assert "completed: 24 of 24 done" in text
    assert "## Against human labels" in lines
    assert "48 calls" in text
    assert WEBHOOK in lines
    assert "scripted" not in text


@pytest.mark.slow
def test_reappraising_with_the_scripted_runtime(tmp_path: Path) -> None:
    models.make("scripted")  # set-up, which says what it makes, is not part of what is shown
    told = shown("reappraise", tmp_path / "home", "--runtime", "scripted")
    assert all(line.startswith("[scripted runtime]") for line in told)
    lines = [line.removeprefix("[scripted runtime]").removeprefix(" ") for line in told]
    text = "\n".join(lines)
    assert "completed: 6 of 6 done" in text
    assert WEBHOOK in lines
    assert text.index("No model has written, scored or compared anything here") < text.index("## ")
    assert text.count("\n  scenario  ") == text.count("\n  chosen    ") == 2
    assert NOT_CLINICAL in text
    for system in ("careful", "platitude"):
        assert f"| {system} " in text
    for member in ("tiny-rm-0", "tiny-rm-1"):
        assert f"| {member} " in text
