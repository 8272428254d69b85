"""A fleet that reappraises: a writer, a judge, a committee, on scripted runtimes; for tests with real workers.

One scripted runtime writes, grades and compares, as three models of the fleet; two others are reward models.
"""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import httpx

from embedded import models
from embedded.processes import Child
from services.foundation.database import transaction
from services.jobs.results import results_page
from tests.parts import PATIENCE, Parts, eventually

KIND = "You may find that she had a long day. Her silence was not about you."
BLAND = "It is fine."
LONG = "One. Two. Three."
THEIRS = "She was busy."
MEMBERS = {"rm": ["rm-0", "rm-1"], "grades": ["grades"]}


class Committee:
    """A fleet with a writer, a judge, a judge that grades, and reward models, and their runtimes."""

    def __init__(self, parts: Parts, free_port: Callable[[], int]) -> None:
        self.parts = parts
        self._weights = str(models.make("scripted"))
        self._ports = {"rm-0": free_port(), "rm-1": free_port()}
        self._time: tuple[str, ...] = ()
        self.workers: dict[str, Child] = {}
        entries = {
            "writer": 'protocol = "reappraisal"\nprotocol_options = { thinks = false }',
            "judge": 'protocol = "sdrm"\noptions = { mode = "direct" }',
            "grades": 'protocol = "prompted"\nprotocol_options = { grades = 5 }\noptions = { mode = "direct" }',
            "rm-0": 'protocol = "reward"',
            "rm-1": 'protocol = "reward"',
        }
        models_of = [
            f'[models.{name}]\n{entry}\nweights = "{self._weights}"\ncontext_length = 8192\nurl = "{self.url(name)}"\n'
            for name, entry in entries.items()
        ]
        committees = [
            '[committees.mixed]\nmembers = [{ name = "rm", models = ["rm-0", "rm-1"] }, "grades"]\n',
            '[committees.within]\nmembers = ["rm-0", "rm-1"]\nnormalise = "group"\n',
        ]
        parts.fleet_file.write_text("\n".join(models_of + committees), encoding="utf-8")

    def url(self, model: str) -> str:
        """Where a model's runtime listens."""
        return f"http://127.0.0.1:{self._ports[model]}" if model in self._ports else self.parts.runtime_url

    def serve(self, *workers: str, slow: bool = False) -> None:
        """Start the runtimes, maintenance, and the workers of these models. `slow`: each call takes its time."""
        self._time = ("--service-time", "lognormal:0.05,0.5", "--slots", "16") if slow else ()
        self.parts.start(
            "runtime",
            *("embedded.scripted", "--port", str(self.parts.port), "--model", self._weights),
            *("--tokenizer", self._weights, *self._time),
        )
        for name in self._ports.keys() & workers:
            self.reward_model(name)
        eventually(lambda: self.parts.answers("/ready"), "the runtime is ready")
        self.parts.script(
            {"match": "A's Response]\n<assistant>\n" + KIND, "p_first": 0.9},
            {"match": "Assistant A's Response]", "p_first": 0.3},
            {"match": KIND, "p_first": 0.01},  # of the grades 1 to 5 the first is unlikely
            {"match": "scenario 0", "text": LONG, "times": 2},
            {"match": "scenario", "text": BLAND, "times": 1},
            {"match": "hopeless", "text": LONG},
            {"match": "scenario", "text": KIND},
        )
        self.parts.maintenance()
        for name in workers:
            self.work(name)

    def reward_model(self, name: str, bias: float | None = None) -> Child:
        """Start the runtime of a reward model, which likes one text; its head's bias is another one at each start."""
        child = self.parts.start(
            name,
            *("embedded.scripted", "--port", str(self._ports[name]), "--model", self._weights, "--is-embedding"),
            *("--tokenizer", self._weights, "--seed", name[-1], *self._time),
            *(() if bias is None else ("--head-bias", str(bias))),
        )
        child.wait_until(lambda: self.parts.answers("/ready", self.url(name)), PATIENCE)
        rules = [{"match": KIND, "score": 9.0}, {"match": BLAND, "score": 1.0}]
        httpx.post(f"{self.url(name)}/scripted/script", json=rules).raise_for_status()
        return child

    def work(self, name: str) -> Child:
        """Start a worker."""
        self.workers[name] = self.parts.worker(name)
        return self.workers[name]

    def scored(self, name: str) -> list[str]:
        """The prompts that a reward model has scored, without its first call."""
        calls = httpx.get(f"{self.url(name)}/scripted/calls").raise_for_status().json()
        return [call["prompt"] for call in calls if "the first answer" not in call["prompt"]]

    def queue(self, tenant: UUID, items: list[dict[str, Any]], **request: Any) -> UUID:
        """Queue a job that reappraises."""
        return self.parts.queue(tenant, items, kind="reappraisal", model="writer", **request)


def scenarios(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        {"custom_id": f"s{number}", "scenario": f"This is scenario {number}.", "cluster": f"v{number % 2}", **fields}
        for number in range(count)
    ]


def results(parts: Parts, tenant: UUID, job_id: UUID) -> list[dict[str, Any]]:
    with transaction(parts.engine) as connection:
        lines = [json.loads(line) for line in results_page(connection, tenant, job_id, 100).lines]
    return sorted(lines, key=lambda line: line["seq"])
