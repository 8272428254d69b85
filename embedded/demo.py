"""`python -m embedded demo`: the shipped comparisons are judged, each in both orders.

Guarantee: that of `embedded/show.py`.
"""

from pathlib import Path

from embedded.fleet import EmbeddedFleet
from embedded.show import Scene, show
from services.foundation.fleet import load_fleet


def demo(home: Path, *, port: int, scripted: bool, fleet: Path | EmbeddedFleet) -> int:
    """Judge the sample with the fleet's first model. Raises EmbeddedError when anything is amiss."""
    models = load_fleet(fleet).models if isinstance(fleet, Path) else fleet.models
    job = {"kind": "judgement", "name": "demo", "judges": [next(iter(models))], "options": {"orders": "both"}}
    scene = Scene(job, Path(__file__).with_name("sample.jsonl"), "comparisons, each to be heard in both orders")
    return show(home, scene, port=port, scripted=scripted, fleet=fleet)
