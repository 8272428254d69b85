"""A server under contract, as the tests speak to it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

SLOTS, QUEUE, CONTEXT = 2, 4, 2048
STORY = "Once upon a time"  # the scripted runtime takes long over it, a real server over every long answer
FLOAT32 = ("--dtype", "float32")  # of bfloat16, three digits of a score are left
PATIENCE_S = 120.0  # for things that take a second on an idle machine


@dataclass(frozen=True, slots=True)
class Server:
    """A server under contract."""

    url: str
    weights: Path
    scripted: bool

    def get(self, path: str) -> httpx.Response:
        """GET."""
        return httpx.get(self.url + path, timeout=PATIENCE_S)

    def post(self, path: str, body: object) -> httpx.Response:
        """POST; text is sent as it is."""
        content = body if isinstance(body, str) else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        return httpx.post(self.url + path, content=content, headers=headers, timeout=PATIENCE_S)

    def generate(self, prompt: str | list[int], max_new_tokens: int = 4, **more: Any) -> httpx.Response:
        """One greedy call. `sampling` adds to the sampling parameters, the rest to the body."""
        sampling = {"max_new_tokens": max_new_tokens, "temperature": 0, **more.pop("sampling", {})}
        key = "text" if isinstance(prompt, str) else "input_ids"
        return self.post("/generate", {key: prompt, "sampling_params": sampling, **more})

    def answer(self, prompt: str | list[int], max_new_tokens: int = 4, **more: Any) -> Any:
        """What a call is answered with, which must be a success."""
        response = self.generate(prompt, max_new_tokens, **more)
        assert response.status_code == 200, response.text
        return response.json()

    def classify(self, ids: list[int], **more: Any) -> httpx.Response:
        """One call for a classifier's numbers."""
        return self.post("/classify", {"input_ids": ids, **more})

    def score(self, ids: list[int]) -> float:
        """What a classifier with one number says of a prompt, which must be a success."""
        response = self.classify(ids)
        assert response.status_code == 200, response.text
        (score,) = response.json()["embedding"]
        return float(score)

    def loads(self) -> tuple[int, int]:
        """(running, waiting)."""
        (rank,) = self.get("/v1/loads").json()["loads"]
        return rank["num_running_reqs"], rank["num_waiting_reqs"]

    def wait_for(self, condition: Callable[[tuple[int, int]], bool], what: str) -> None:
        """Wait until the gauges are as they should be."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition(self.loads()):
            assert time.monotonic() < deadline, f"{what} did not happen: {self.loads()}"
            time.sleep(0.1)

    def wait_until_idle(self) -> None:
        """Wait until nothing runs or waits."""
        self.wait_for(lambda loads: loads == (0, 0), "idleness")

    def abort(self, rid: str) -> httpx.Response:
        """Abort a call."""
        return self.post("/abort_request", {"rid": rid})

    @contextmanager
    def telling_stories(self, *rids: str) -> Iterator[dict[str, httpx.Response]]:
        """Long calls in flight; their answers are in the dictionary once the block has ended, which aborts them."""
        answers: dict[str, httpx.Response] = {}

        def tell(rid: str) -> None:
            answers[rid] = self.generate(STORY, CONTEXT - 100, rid=rid, sampling={"ignore_eos": True})

        threads = []
        try:
            for number, rid in enumerate(rids, start=1):
                threads.append(threading.Thread(target=tell, args=(rid,)))
                threads[-1].start()
                self.wait_for(lambda loads, number=number: sum(loads) >= number, f"call {rid}")  # type: ignore[misc]
            yield answers
        finally:
            for rid in rids:
                self.abort(rid)
            for thread in threads:
                thread.join(PATIENCE_S)
            self.wait_until_idle()
