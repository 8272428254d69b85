"""`python -m embedded demo`: the main job on real parts, from submission to report and webhook.

Guarantee: it ends well only if every comparison of the sample was judged and the webhook arrived with a good signature.
Whatever happens, every part is stopped. With the scripted runtime every line says so.
"""

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

from embedded.processes import EmbeddedError
from embedded.stack import Stack, running

SAMPLE = Path(__file__).resolve().parent / "sample.jsonl"
_LOOK_SECONDS = 1.0
_WEBHOOK_SECONDS = 60
_OPEN = {"queued", "running", "cancelling"}


def demo(home: Path, *, port: int, scripted: bool, fleet: Path | None) -> int:
    """Run the stack, judge the sample, show what comes of it, stop. Raises EmbeddedError when anything is amiss."""

    def say(text: str) -> None:
        for line in text.splitlines():
            print(f"[scripted runtime] {line}".rstrip() if scripted else line, flush=True)

    started = time.monotonic()
    say("starting PostgreSQL, Valkey, the API, a worker and its runtime ...")
    with running(home, port=port, scripted=scripted, fleet=fleet) as stack:
        say(f"ready after {time.monotonic() - started:.0f} s: {stack.url}, judged by {stack.runtime}")
        secret = stack.webhook_secret_file.read_text().strip()
        with _receiver(secret) as (callback, arrived), stack.client() as client:
            items = [json.loads(line) for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
            job_id = _submit(client, stack.models[0], items, callback)
            say(f"submitted {len(items)} comparisons, each to be heard in both orders: job {job_id}")
            for status, counts in _followed(stack, client, job_id):
                ended = counts["total"] - counts["queued"] - counts["running"]
                say(f"  {status}: {ended} of {counts['total']} judged")
            report = _get(client, f"/v1/jobs/{job_id}/report", accept="text/markdown").text
            say(f"\n{report}\n")
            if status != "completed":
                raise EmbeddedError(f"the job ended {status}: {counts}")
            say(f"webhook: {_verified(arrived, job_id)}")
        say("stopping ...")
    say(f"done in {time.monotonic() - started:.0f} s; nothing is left running")
    return 0


def _submit(client: httpx.Client, model: str, items: list[dict[str, Any]], callback: str) -> str:
    request = {
        "kind": "judgement",
        "name": "demo",
        "judges": [model],
        "items": items,
        "options": {"orders": "both"},
        "priority": "interactive",  # ahead of what an earlier stack may have left in the queue
        "callback": {"url": callback},
    }
    answer = client.post("/v1/jobs", json=request)
    if answer.status_code != httpx.codes.ACCEPTED:
        raise EmbeddedError(f"POST /v1/jobs answered {answer.status_code}: {answer.text}")
    return str(answer.json()["id"])


def _followed(stack: Stack, client: httpx.Client, job_id: str) -> Iterator[tuple[str, dict[str, int]]]:
    """The job's status and counts, now and each time that they have changed; its end is the last."""
    shown = None
    while shown is None or shown[0] in _OPEN:
        job = _get(client, f"/v1/jobs/{job_id}").json()
        if (state := (job["status"], job["counts"])) != shown:
            yield state
        shown = state
        stack.check()
        time.sleep(_LOOK_SECONDS)


def _get(client: httpx.Client, path: str, accept: str = "application/json") -> httpx.Response:
    answer = client.get(path, headers={"Accept": accept})
    if not answer.is_success:
        raise EmbeddedError(f"GET {path} answered {answer.status_code}: {answer.text}")
    return answer


@contextmanager
def _receiver(secret: str) -> Iterator[tuple[str, "queue.Queue[dict[str, Any] | None]"]]:
    """A webhook receiver: its URL, and the events that arrived there; None stands for one with a bad signature."""
    webhook = Webhook(secret)
    arrived: queue.Queue[dict[str, Any] | None] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                event = webhook.verify(body, dict(self.headers.items()))
            except WebhookVerificationError:
                event = None
            self.send_response(204 if event else 400)
            self.end_headers()
            arrived.put(event)

        def log_message(self, format: str, *args: object) -> None:
            """The demo tells of deliveries itself."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/hook", arrived
        finally:
            server.shutdown()
            serving.join()


def _verified(arrived: "queue.Queue[dict[str, Any] | None]", job_id: str) -> str:
    """Wait for the event of the job's end; say what it was."""
    try:
        event = arrived.get(timeout=_WEBHOOK_SECONDS)
    except queue.Empty:
        raise EmbeddedError(f"no webhook arrived within {_WEBHOOK_SECONDS} s of the job's end") from None
    if event is None:
        raise EmbeddedError("a webhook arrived whose signature is wrong")
    if event["data"]["job_id"] != job_id:
        raise EmbeddedError(f"a webhook arrived that tells of another job: {event['data']['job_id']}")
    return f"{event['type']} arrived and its signature was verified"
