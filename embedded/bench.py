"""`python -m embedded bench`: what the service itself costs, with a runtime that answers at once.

Guarantee: real parts, one worker, the scripted runtime without service time. Every figure is of this one run on this
one machine: compare the ratios, not the seconds.
"""

import json
import os
import time
from pathlib import Path

from embedded.fleet import JUDGING
from embedded.jobs import complete
from embedded.stack import Stack, running

_TICKS = os.sysconf("SC_CLK_TCK")
_SENTENCE = "The second answer explains why the first step follows, and checks it with an example. "


def bench(home: Path, *, items: int) -> int:
    """Judge `items` made-up comparisons in both orders in direct mode and print what it took, as JSON.

    Raises EmbeddedError when not every one succeeded.
    """
    with running(home, port=0, scripted=True, fleet=JUDGING) as stack, stack.client() as client:
        request = {"kind": "judgement", "judges": stack.models}
        complete(client, request, map(_comparison, range(200)))  # what is slow only once does not count
        before = cpu_seconds(stack)
        began = time.monotonic()
        submitted, job = complete(client, request, map(_comparison, range(items)))
        seconds = time.monotonic() - began
        used = {name: after - before[name] for name, after in cpu_seconds(stack).items()}
    calls = job["usage"]["calls"]
    figures = {
        "items": items,
        "calls": calls,
        "prompt_tokens_per_call": round(job["usage"]["prompt_tokens"] / calls),
        "submit_items_per_second": round(items / submitted),
        "items_per_second": round(items / (seconds - submitted)),
        "cores_used": round(sum(used.values()) / seconds, 2),
        "cpu_ms_per_call": {name: round(1000 * spent / calls, 3) for name, spent in used.items()},
    }
    print(json.dumps(figures, indent=2))
    return 0


def cpu_seconds(stack: Stack) -> dict[str, float]:
    """User and system seconds of each part so far, all processes below it included (Linux's /proc)."""
    parents: dict[int, int] = {}
    own: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile; its parent has its seconds
        parents[int(entry.name)] = int(fields[1])
        own[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS  # with those of children already reaped
    names = {child.pid: child.name for child in stack.children}
    spent = dict.fromkeys(names.values(), 0.0)
    for process, seconds in own.items():
        above = process
        while above in parents and above not in names:
            above = parents[above]
        if above in names:
            spent[names[above]] += seconds
    return spent


def _comparison(number: int) -> dict[str, object]:
    """A comparison of about 1.3 kB, unlike the others from its first word on."""
    return {
        "custom_id": f"bench-{number}",
        "context": [{"role": "user", "content": f"{number}: why is that so? {_SENTENCE * 2}"}],
        "candidates": [{"content": f"{number} {_SENTENCE * 5}"}, {"content": f"{_SENTENCE * 6} {number}"}],
        "label": "B" if number % 2 else "A",
    }
