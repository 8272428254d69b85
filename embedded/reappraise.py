"""`python -m embedded reappraise`: reappraisals of the shipped scenarios are written, scored, chosen and compared.

Guarantee: that of `embedded/show.py`; and it says before the report how little stands behind what it shows. What was
written is shown as data: no text reaches a terminal's controls.
"""

import json
import textwrap
from pathlib import Path

import httpx

from embedded.fleet import COMMITTEE, MODEL, REAPPRAISING, WRITER
from embedded.jobs import read
from embedded.show import Scene, show

SCENARIOS = Path(__file__).with_name("scenarios.jsonl")
SHOWN = 2  # scenarios with their texts
JOB: dict[str, object] = {
    "kind": "reappraisal",
    "name": "reappraise",
    "model": WRITER,
    "options": {
        "candidates": 2,
        "gate_retries": 6,  # of what the small model writes, less than half passes the gate
        "sampling": {"max_tokens": 64},
        "committee": COMMITTEE,
        "compare": MODEL,
        "pool": "the shipped scenarios",
    },
}
SCRIPTED_CAUTION = (
    "No model has written, scored or compared anything here: stand-ins write a few fixed texts in turn, and draw the\n"
    "scores and the verdicts by rule. This shows how the parts work together, and nothing of quality."
)
CAUTION = (
    "The reward models of this committee have random weights: they choose at random. The model that writes\n"
    "and compares has 135 million parameters. This shows how the parts work together, and nothing of quality."
)


def reappraise(home: Path, *, port: int, scripted: bool) -> int:
    """Reappraise the sample. Raises EmbeddedError when anything is amiss."""
    scene = Scene(JOB, SCENARIOS, "scenarios", SCRIPTED_CAUTION if scripted else CAUTION, chosen_texts)
    return show(home, scene, port=port, scripted=scripted, fleet=REAPPRAISING)


def chosen_texts(client: httpx.Client, job_id: str) -> str:
    """Some scenarios, each with the text that was chosen for it, and where all that was written is read."""
    lines = SCENARIOS.read_text(encoding="utf-8").splitlines()
    scenarios = {item["custom_id"]: item["scenario"] for item in map(json.loads, lines)}
    results = f"/v1/jobs/{job_id}/results"
    told = [f"The first {SHOWN} scenarios that were done, and the texts that were chosen for them:"]
    for result in read(client, f"{results}?limit={SHOWN}").json()["data"]:
        told += ["", _paragraph("scenario", scenarios[result["custom_id"]])]
        told += [_paragraph("chosen", result["reappraisal"]["text"])]
    return "\n".join(
        [*told, "", f"Every text, with its scores: GET {results}, while `make up` with the same RUNTIME runs."]
    )


def _paragraph(called: str, text: str) -> str:
    """A text under its name, without line breaks of its own, and without what a terminal would act on."""
    harmless = "".join(character if character.isprintable() else " " for character in text)
    return textwrap.fill(harmless, 100, initial_indent=f"  {called:<10}", subsequent_indent=" " * 12)
