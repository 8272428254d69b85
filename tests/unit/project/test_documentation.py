"""The documentation says what the code does."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from embedded.fleet import REAPPRAISING
from services.foundation.errors import Fault
from services.foundation.fleet import Fleet, load_fleet
from services.jobs.request import read_job, read_job_with_items
from services.jobs.states import TRANSITIONS
from services.vocabulary import JobStatus

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| `(\w+)` \| .+ \|(.*)\|$", re.M)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
TARGET = re.compile(r"`make (\w+)")
JOB = re.compile(r'\{\s*"kind": ')


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


def embedded_fleet(folder: Path) -> Fleet:
    """The fleet that `make up FLEET=reappraising` serves; it has the judge of the other shipped one, too."""
    file = folder / "fleet.toml"
    file.write_text(REAPPRAISING.scripted(dict.fromkeys(REAPPRAISING.stand_ins(), "http://127.0.0.1:1")))
    return load_fleet(file)


@pytest.mark.parametrize(("page", "jobs"), [("README.md", 3), ("docs/reappraisal.md", 2)])
def test_every_job_that_a_page_shows_is_one(page: str, jobs: int, tmp_path: Path) -> None:
    """The README's on the fleet that is served here, the others on that of the container."""
    fleet = embedded_fleet(tmp_path) if page == "README.md" else load_fleet(ROOT / "fleet.toml")
    text = (ROOT / page).read_text("utf-8")
    shown = [json.JSONDecoder().raw_decode(text, found.start())[0] for found in JOB.finditer(text)]
    assert len(shown) == jobs
    for job in shown:
        if "items" in job:
            _, items = read_job_with_items(json.dumps(job).encode(), fleet)
            assert [item for item in items if isinstance(item, Fault)] == []
        else:
            read_job(json.dumps(job).encode(), fleet)
