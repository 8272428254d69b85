"""Callers: they submit jobs of all kinds and sizes over HTTP, cancel some, and have their ends told to a receiver."""

import http.server
import random
import threading
import time
from collections import Counter
from typing import Any
from uuid import UUID

import httpx
from sqlalchemy import text

from api.keys import create_key
from services.foundation.database import transaction
from services.foundation.identifiers import parsed
from tests.committees import THEIRS, scenarios
from tests.factories import comparisons
from tests.soak.stack import Stack

MOST_OPEN_ITEMS = 1500
ANSWER = 10.0  # seconds that a caller waits: an API may be frozen
OPEN = text("SELECT coalesce(sum(total), 0) FROM job WHERE ended_at IS NULL")
SIZES = (1, 5, 40, 40, 300)


class Receiver:
    """Hears of ends; every twentieth request it fails."""

    def __init__(self) -> None:
        heard = Counter[str]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                heard["requests"] += 1
                self.send_response(500 if heard["requests"] % 20 == 0 else 204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """The attempts are in the database."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        """Hear no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Callers:
    """They keep the service busy. `accepted` are the jobs answered with 202, `answers` counts all statuses."""

    def __init__(self, stack: Stack, chance: random.Random, receiver: Receiver) -> None:
        self._stack = stack
        self._chance = chance
        self._receiver = receiver
        with transaction(stack.engine) as connection:
            self._keys = [create_key(connection, tenant).key for tenant in ("acme", "bolt")]
        self._to_cancel: list[tuple[float, str, str]] = []
        self.accepted: list[UUID] = []
        self.answers: Counter[str] = Counter()

    def tick(self) -> None:
        """Submit a job if there is room for one, and cancel what is due."""
        now = time.monotonic()
        for due in [entry for entry in self._to_cancel if entry[0] <= now]:
            self._to_cancel.remove(due)
            self._ask(due[2], f"/v1/jobs/{due[1]}/cancel", None)
        with transaction(self._stack.engine) as connection:
            items = connection.scalar(OPEN) or 0
        if items < MOST_OPEN_ITEMS:
            self._submit()

    def _submit(self) -> None:
        chance, key = self._chance, self._chance.choice(self._keys)
        body = self._job(chance.choice(SIZES))
        if chance.random() < 0.3:
            body["callback"] = {"url": self._receiver.url}
        body["priority"] = chance.choice(("interactive", "standard", "standard", "bulk"))
        answer = self._ask(key, "/v1/jobs", body)
        if answer is None or answer.status_code != httpx.codes.ACCEPTED:
            return
        job_id = answer.json()["id"]
        accepted = parsed("job", job_id)
        assert accepted is not None
        self.accepted.append(accepted)
        if chance.random() < 0.1:
            self._to_cancel.append((time.monotonic() + chance.uniform(0.0, 10.0), job_id, key))

    def _job(self, size: int) -> dict[str, Any]:
        match self._chance.choice(("judge", "grades", "panel", "samples", "reappraisal", "scoring")):
            case "judge":
                return {"kind": "judgement", "judges": ["judge"], "items": comparisons(size)}
            case "grades":
                return {"kind": "judgement", "judges": ["grades"], "items": comparisons(size)}
            case "panel":
                return {"kind": "judgement", "judges": ["judge", "grades"], "items": comparisons(size)}
            case "samples":
                options = {"mode": "reason", "samples": 3}
                return {"kind": "judgement", "judges": ["judge"], "items": comparisons(size), "options": options}
            case "reappraisal":
                options = {"candidates": 2, "compare": "judge"}
                items = scenarios(min(size, 40), baseline=THEIRS)
                return {"kind": "reappraisal", "model": "writer", "items": items, "options": options}
            case _:
                said = [{"role": "user", "content": "What is best?"}]
                items = [{"custom_id": f"t{n}", "context": said, "response": f"Answer {n}."} for n in range(size)]
                return {"kind": "scoring", "committee": "graders", "items": items}

    def _ask(self, key: str, path: str, body: Any) -> httpx.Response | None:
        """POST to one of the APIs; None when there was no answer."""
        url = self._chance.choice(self._stack.apis)
        try:
            answer = httpx.post(url + path, json=body, headers={"Authorization": f"Bearer {key}"}, timeout=ANSWER)
        except httpx.TransportError as error:
            self.answers[type(error).__name__] += 1
            return None
        self.answers[str(answer.status_code)] += 1
        return answer
