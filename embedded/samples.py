"""`python -m embedded samples`: what stopping samples early saves, and how often it changes the winner.

Guarantee: real parts, and the scripted runtime as a judge of known preferences. Its verdicts are drawn, and the same
ones are drawn for every way of stopping, so that a difference to the full hearing is the stopping's doing alone.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from scipy.stats import beta

from embedded.fleet import JUDGING
from embedded.jobs import complete
from embedded.stack import running
from services.foundation.fleet import load_fleet

SAMPLES = (5, 9)
STOPS: Mapping[str, object] = {
    "never": "never",
    "certain": "certain",
    "0.9": {"confidence": 0.9},
    "0.95": {"confidence": 0.95},
}
SHAPE = 0.7  # of the beta distribution of preferences, on both sides: more clear items than close ones
BIAS = 0.1  # what the first slot adds to the chance of who sits in it
SUREST = 0.99
HEADINGS = (
    *("samples", "early_stop", "calls", "calls saved", "tokens saved", "winner differs", "A and B exchanged"),
    *("stopped by the test", "of these against the preference"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """All items, heard in one way.

    `stop` is a key of STOPS, `tokens` counts those that the judge wrote. By item: its `winner`, and why its hearing
    `stopped`, None where it went to its end.
    """

    samples: int
    stop: str
    calls: int
    tokens: int
    winner: Mapping[int, str]
    stopped: Mapping[int, str | None]

    @property
    def found(self) -> list[int]:
        """The items whose hearing the sequential test stopped."""
        return [item for item, stopped in self.stopped.items() if stopped == "confident"]

    def against(self, preferred: Sequence[float]) -> list[int]:
        """Of the found items those whose winner is not the one that is preferred in the long run."""
        return [item for item in self.found if self.winner[item] != ("A" if preferred[item] > 0.5 else "B")]

    def differing(self, full: "Run") -> list[int]:
        """The items whose winner is not that of the full hearing."""
        return [item for item, winner in full.winner.items() if self.winner[item] != winner]


def samples(home: Path, *, items: int) -> int:
    """Judge `items` made-up comparisons in every way of `study` and print a table of what came of it.

    Raises EmbeddedError when not every item succeeded.
    """
    preferred = preferences(items)
    with running(home, port=0, scripted=True, fleet=JUDGING) as stack, stack.client() as client:
        model = load_fleet(home / "fleet.toml").models[stack.models[0]]
        assert model.url is not None
        runs = list(study(client, model.name, model.url, preferred))
    print("\n".join(table(runs, preferred)))
    return 0


def preferences(items: int) -> list[float]:
    """How often each item's first candidate is preferred, position aside: quantiles of a beta distribution.

    With an even number of items none is at 1/2.
    """
    return [float(p) for p in beta(SHAPE, SHAPE).ppf((np.arange(items) + 0.5) / items)]


def study(client: httpx.Client, model: str, runtime_url: str, preferred: Sequence[float]) -> Iterator[Run]:
    """Hear the items with each number of samples an order and each way of stopping, to the end first.

    Raises EmbeddedError when not every item succeeded.
    """
    for most in SAMPLES:
        for stop, early_stop in STOPS.items():
            _instruct(runtime_url, preferred)
            options = {"mode": "reason", "samples": most, "early_stop": early_stop}
            request = {"kind": "judgement", "judges": [model], "options": options}
            _, job = complete(client, request, map(_comparison, range(len(preferred))))
            answer = client.get(f"/v1/jobs/{job['id']}/results", headers={"Accept": "application/x-ndjson"})
            verdict = {}
            for line in answer.raise_for_status().iter_lines():
                result = json.loads(line)
                verdict[int(result["custom_id"])] = result["verdict"]
            winner = {item: answered["winner"] for item, answered in verdict.items()}
            stopped = {item: answered["opinions"][0]["stopped"] for item, answered in verdict.items()}
            yield Run(most, stop, job["usage"]["calls"], job["usage"]["completion_tokens"], winner, stopped)


def table(runs: Sequence[Run], preferred: Sequence[float]) -> Iterator[str]:
    """The lines of a Markdown table, a run each; what is saved is saved of the full hearing with as many samples."""
    full = {run.samples: run for run in runs if run.stop == "never"}
    yield f"| {' | '.join(HEADINGS)} |"
    yield "|---" * len(HEADINGS) + "|"
    for run in runs:
        whole = full[run.samples]
        differing, found, against = run.differing(whole), run.found, run.against(preferred)
        exchanged = [item for item in differing if {run.winner[item], whole.winner[item]} == {"A", "B"}]
        cells = (
            *(run.samples, run.stop, f"{run.calls:,}"),
            *(f"{1 - run.calls / whole.calls:.1%}", f"{1 - run.tokens / whole.tokens:.1%}"),
            *(len(differing), len(exchanged), len(found)),
            f"{len(against)} ({len(against) / len(found):.1%})" if found else "0",
        )
        yield f"| {' | '.join(map(str, cells))} |"


def _instruct(runtime_url: str, preferred: Sequence[float]) -> None:
    """Tell the runtime how often each item's first slot wins, in either order; all draws begin anew."""
    orders = [
        # as the judge's prompt shows it
        {
            "match": f"Assistant A's Response]\n<assistant>\n{item} {first}",
            "p_first": min(p + BIAS, SUREST),
            "drawn": True,
        }
        for item, preference in enumerate(preferred)
        for first, p in (("A", preference), ("B", 1 - preference))
    ]
    with httpx.Client(base_url=runtime_url, trust_env=False) as runtime:
        runtime.delete("/scripted/script").raise_for_status()
        runtime.post("/scripted/script", json=orders).raise_for_status()


def _comparison(item: int) -> dict[str, object]:
    context = [{"role": "user", "content": f"Which of the two is better, {item} A or {item} B?"}]
    return {
        "custom_id": str(item),
        "context": context,
        "candidates": [{"content": f"{item} A"}, {"content": f"{item} B"}],
    }
