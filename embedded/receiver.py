"""A webhook receiver on this machine, for one job's end.

Guarantee: an event that it tells of bore a good signature.
"""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

from embedded.processes import EmbeddedError

_WEBHOOK_SECONDS = 60


class Receiver:
    """Where a webhook goes, and what arrived there; None stands for an event with a bad signature."""

    def __init__(self, url: str, arrived: "queue.Queue[dict[str, Any] | None]") -> None:
        self.url = url
        self._arrived = arrived

    def wait_for(self, job_id: str) -> str:
        """Wait for the event of the job's end; its type. Raises EmbeddedError when none comes, or another one."""
        try:
            event = self._arrived.get(timeout=_WEBHOOK_SECONDS)
        except queue.Empty:
            raise EmbeddedError(f"no webhook arrived within {_WEBHOOK_SECONDS} s of the job's end") from None
        if event is None:
            raise EmbeddedError("a webhook arrived whose signature is wrong")
        if event["data"]["job_id"] != job_id:
            raise EmbeddedError(f"a webhook arrived that tells of another job: {event['data']['job_id']}")
        return str(event["type"])


@contextmanager
def receiving(secret: str) -> Iterator[Receiver]:
    """Receive webhooks that are signed with `secret` for the length of the block."""
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
            """Whoever waits tells of deliveries."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield Receiver(f"http://127.0.0.1:{server.server_address[1]}/hook", arrived)
        finally:
            server.shutdown()
            serving.join()
