"""One job on a stack of its own, shown from its submission to its report and webhook.

Guarantee: it ends well only if every item succeeded and the webhook arrived with a good signature. Whatever happens,
every part is stopped. With the scripted runtime every line says so.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from embedded.fleet import EmbeddedFleet
from embedded.jobs import read, submit
from embedded.processes import EmbeddedError
from embedded.receiver import receiving
from embedded.stack import Stack, running

_LOOK_SECONDS = 1.0
_OPEN = {"queued", "running", "cancelling"}


@dataclass(frozen=True, slots=True)
class Scene:
    """What is shown: a job, the file of its items, in words what these are.

    `caution` is printed above the report, and what `excerpt` makes of the results of the job with this id below it.
    """

    job: Mapping[str, object]
    items: Path
    called: str
    caution: str = ""
    excerpt: Callable[[httpx.Client, str], str] | None = None


def show(home: Path, scene: Scene, *, port: int, scripted: bool, fleet: Path | EmbeddedFleet) -> int:
    """Run the stack and the job, show what comes of it, stop. Raises EmbeddedError when anything is amiss."""

    def say(text: str) -> None:
        for line in text.splitlines():
            print(f"[scripted runtime] {line}".rstrip() if scripted else line, flush=True)

    started = time.monotonic()
    say("starting PostgreSQL, Valkey, the API, a worker with its runtime for each model ...")
    with running(home, port=port, scripted=scripted, fleet=fleet) as stack:
        say(f"ready after {time.monotonic() - started:.0f} s: {stack.url}, answered by {stack.runtime}")
        secret = stack.webhook_secret_file.read_text().strip()
        with receiving(secret) as receiver, stack.client() as client:
            items = [json.loads(line) for line in scene.items.read_text(encoding="utf-8").splitlines()]
            # ahead of what an earlier stack may have left in the queue
            order = {"priority": "interactive", "callback": {"url": receiver.url}}
            job_id = submit(client, {**scene.job, **order}, items)
            say(f"submitted {len(items)} {scene.called}: job {job_id}")
            for status, counts in _followed(stack, client, job_id):
                ended = counts["total"] - counts["queued"] - counts["running"]
                say(f"  {status}: {ended} of {counts['total']} done")
            report = read(client, f"/v1/jobs/{job_id}/report", accept="text/markdown").text
            say(f"\n{scene.caution}\n\n{report}\n" if scene.caution else f"\n{report}\n")
            if status != "completed":
                raise EmbeddedError(f"the job ended {status}: {counts}")
            if scene.excerpt is not None:
                say(f"{scene.excerpt(client, job_id)}\n")
            say(f"webhook: {receiver.wait_for(job_id)} arrived and its signature was verified")
        say("stopping ...")
    say(f"done in {time.monotonic() - started:.0f} s; nothing is left running")
    return 0


def _followed(stack: Stack, client: httpx.Client, job_id: str) -> Iterator[tuple[str, dict[str, int]]]:
    """The job's status and counts, now and each time that they have changed; its end is the last."""
    shown = None
    while shown is None or shown[0] in _OPEN:
        job = read(client, f"/v1/jobs/{job_id}").json()
        if (state := (job["status"], job["counts"])) != shown:
            yield state
        shown = state
        stack.check()
        time.sleep(_LOOK_SECONDS)
