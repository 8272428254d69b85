"""The fleets of the embedded stack: one that judges, and one that reappraises.

Guarantee: the same models, asked in the same way, whether the real SGLang answers or scripted runtimes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from embedded import models, sglang

MODEL = "smollm2"
WRITER, COMMITTEE = "smollm2-writer", "random"
_STAND_IN = "scripted"


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of a fleet: the small model that it is, and how it is asked, as TOML."""

    weights: models.ModelName
    asked: str
    context_length: int = 8192
    classifies: bool = False


@dataclass(frozen=True, slots=True)
class EmbeddedFleet:
    """Models by name, and committees, as TOML. `described` says in words what answers when the real SGLang does.

    The scripted runtime runs `slots` calls at once, each for a `service_time` as its command line has it; `orders` tell
    it what to write: `embedded/scripted/script.py`.
    """

    described: str
    models: Mapping[str, Entry]
    committees: str = ""
    orders: Sequence[Mapping[str, object]] = ()
    slots: int = 16
    service_time: str = "0"

    def real(self) -> str:
        """The fleet file with which workers launch the models on the CPU. Installs what that needs."""
        python = str(sglang.install())
        return self._file({name: self._launched(entry, python) for name, entry in self.models.items()})

    def scripted(self, urls: Mapping[str, str]) -> str:
        """The fleet file with which workers attach to the stand-ins, which listen at `urls`."""
        weights = str(models.make("scripted"))
        return self._file({name: {"weights": weights, "url": urls[self._stand_in(name)]} for name in self.models})

    def stand_ins(self) -> dict[str, list[str]]:
        """The scripted runtimes by name, with their arguments: one writes for all models, one a classifier scores."""
        weights = str(models.make("scripted"))
        common = ["--model", weights, "--tokenizer", weights, "--slots", str(self.slots)]
        common += ["--service-time", self.service_time]
        told: dict[str, list[str]] = {}
        for seed, (name, entry) in enumerate(self.models.items()):
            own = ["--is-embedding", "--seed", str(seed)] if entry.classifies else []
            told[self._stand_in(name)] = [*common, "--context-length", str(entry.context_length), *own]
        return told

    def _stand_in(self, name: str) -> str:
        return f"{_STAND_IN}-{name}" if self.models[name].classifies else _STAND_IN

    def _launched(self, entry: Entry, python: str) -> dict[str, object]:
        # A CPU without bfloat16 arithmetic emulates it: there float32 reads prompts four times as fast. And bfloat16's
        # logits are so coarse that the two orders of a comparison often cancel out to an exact tie.
        # The KV cache would be sized by the machine's memory, and an idle scheduler would poll on a core.
        cache = str(2 * entry.context_length)
        launch = ["--device", "cpu", "--dtype", "float32", "--max-total-tokens", cache, "--sleep-on-idle"]
        return {"weights": str(models.make(entry.weights)), "gpus": 0, "python": python, "launch": launch}

    def _file(self, served: Mapping[str, Mapping[str, object]]) -> str:
        lines = []
        for name, entry in self.models.items():
            fields = {"context_length": entry.context_length, **served[name]}
            # JSON's texts, numbers and lists are TOML's too
            lines += [f"[models.{name}]", entry.asked, *(f"{key} = {json.dumps(fields[key])}" for key in fields), ""]
        return "\n".join([*lines, self.committees])


_JUDGE = 'protocol = "sdrm"\noptions = { mode = "direct" }'
_REWARD = 'protocol = "reward"'

# A stand-in writes these in turn, and then the first for ever. The last is too long and is written
# anew: three sentences.
_TEXTS = (
    "It may look different to those who did it, and you could ask them.",
    "You do not know yet what they meant by it. There may be a reason that has nothing to do with you.",
    "You are upset. That will pass. Things look better in the morning.",
)
_TURNS = 20  # more texts than a job on the sample can need
_WRITES = "Limit your response to two sentences"

JUDGING = EmbeddedFleet(
    described="SGLang on this CPU with SmolLM2-135M-Instruct",
    models={MODEL: Entry("smollm2", _JUDGE)},
)

REAPPRAISING = EmbeddedFleet(
    described="SGLang on this CPU: SmolLM2-135M-Instruct writes and compares, two random reward models choose",
    models={
        MODEL: Entry("smollm2", _JUDGE, 4096),
        # its chat template opens no <think>, and takes our system prompt in place of its own
        WRITER: Entry("smollm2", 'protocol = "reappraisal"\nprotocol_options = { thinks = false }', 4096),
        "tiny-rm-0": Entry("tiny-rm-0", _REWARD, 2048, classifies=True),
        "tiny-rm-1": Entry("tiny-rm-1", _REWARD, 2048, classifies=True),
    },
    committees=f'[committees.{COMMITTEE}]\nmembers = ["tiny-rm-0", "tiny-rm-1"]\n',
    orders=[
        *({"match": _WRITES, "text": text, "times": 1} for _ in range(_TURNS) for text in _TEXTS),
        {"match": _WRITES, "text": _TEXTS[0]},
    ],
)

SHIPPED: Mapping[str, EmbeddedFleet] = {"judging": JUDGING, "reappraising": REAPPRAISING}


def chosen(name: str) -> Path | EmbeddedFleet:
    """The shipped fleet of this name, else the fleet file at this path."""
    return SHIPPED.get(name) or Path(name)
