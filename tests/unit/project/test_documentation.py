"""The documentation says what the code does."""

import re
import subprocess
from pathlib import Path

from services.jobs.states import TRANSITIONS
from services.vocabulary import JobStatus

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| `(\w+)` \| .+ \|(.*)\|$", re.M)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
TARGET = re.compile(r"`make (\w+)")


def pages() -> list[Path]:
    """Every page of documentation that git knows."""
    command = ["git", "ls-files", "-z", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name]


def test_the_page_of_job_states_shows_the_transition_table() -> None:
    page = (ROOT / "docs" / "job-states.md").read_text("utf-8")
    shown = {
        JobStatus(status): frozenset(JobStatus(onward) for onward in re.findall(r"`(\w+)`", onwards))
        for status, onwards in ROW.findall(page)
    }
    assert shown == TRANSITIONS


def test_every_link_between_pages_leads_somewhere() -> None:
    dead = [
        f"{page.relative_to(ROOT)} -> {link}"
        for page in pages()
        for link in LINK.findall(page.read_text("utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert dead == []


def test_every_make_target_that_the_pages_name_exists() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    named = {target for page in pages() for target in TARGET.findall(page.read_text("utf-8"))}
    assert named
    assert named <= targets
