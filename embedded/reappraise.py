"""`python -m embedded reappraise`: reappraisals of the shipped scenarios are written, scored, chosen and compared.

Guarantee: that of `embedded/show.py`; and it says before the report that what chooses here has random weights.
"""

from pathlib import Path

from embedded.fleet import COMMITTEE, MODEL, REAPPRAISING, WRITER
from embedded.show import Scene, show

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
CAUTION = (
    "The reward models of this committee have random weights: they choose at random. The model that writes\n"
    "and compares has 135 million parameters. This shows how the parts work together, and nothing of quality."
)


def reappraise(home: Path, *, port: int, scripted: bool) -> int:
    """Reappraise the sample. Raises EmbeddedError when anything is amiss."""
    scene = Scene(JOB, Path(__file__).with_name("scenarios.jsonl"), "scenarios", CAUTION)
    return show(home, scene, port=port, scripted=scripted, fleet=REAPPRAISING)
