"""The worker of a reward model: it launches a classifier or attaches to one, and finds out when a server is none."""

import sys

import pytest

from embedded import models
from embedded.places import CHECKOUT
from tests.factories import MODEL
from tests.parts import Parts, eventually

READY = "SELECT 1 FROM worker WHERE state = 'ready'"
# Stands where an interpreter with SGLang would: the scripted runtime, a classifier only where it is told to be one.
INTERPRETER = """#!{python}
import os, sys
given = sys.argv[1:]
port = given[given.index("--port") + 1]
kind = ["--is-embedding"] if "--is-embedding" in given else []
os.chdir({checkout!r})
command = ["-m", "embedded", "scripted", "--port", port, "--tokenizer", {tokenizer!r}, "--model", {model!r}, *kind]
os.execv({python!r}, [{python!r}, *command])
"""


def member_of(parts: Parts, protocol: str, place: str) -> None:
    """A fleet of one model; `place` says where its server is."""
    weights = models.make("scripted")
    parts.fleet_file.write_text(
        f'[models.{MODEL}]\nprotocol = "{protocol}"\nweights = "{weights}"\ncontext_length = 8192\n{place}\n',
        encoding="utf-8",
    )


def test_it_attaches_to_a_classifier_and_asks_it_for_a_number_first(parts: Parts) -> None:
    parts.runtime("--is-embedding")
    member_of(parts, "reward", f'url = "{parts.runtime_url}"')
    parts.worker()
    assert eventually(lambda: parts.rows(READY), "the worker is ready")
    (call,) = parts.calls()
    assert call["prompt"].endswith("<|im_start|>assistant\nthe first answer<|im_end|>\n")
    assert (call["finish_reason"], call["completion_tokens"]) == ("length", 0)


def test_it_launches_a_classifier(parts: Parts) -> None:
    script = parts.folder / "python"
    tokenizer = str(models.make("scripted"))
    script.write_text(
        INTERPRETER.format(python=sys.executable, checkout=str(CHECKOUT), tokenizer=tokenizer, model=MODEL)
    )
    script.chmod(0o755)
    parts.settings["RUNTIME_LOGS"] = str(parts.folder)
    member_of(parts, "reward", f'gpus = 0\npython = "{script}"')
    parts.worker()
    (epoch,) = eventually(lambda: parts.rows("SELECT launch_flags FROM runtime_epoch"), "the runtime has answered")
    assert "--is-embedding" in epoch["launch_flags"]


@pytest.mark.parametrize(
    ("protocol", "kind", "said"),
    [
        ("reward", (), "refused"),
        ("sdrm", ("--is-embedding",), "garbled"),
    ],
)
def test_a_server_of_the_other_kind_is_found_out_by_the_first_call_and_left_alive(
    parts: Parts, protocol: str, kind: tuple[str, ...], said: str
) -> None:
    runtime = parts.runtime(*kind)
    member_of(parts, protocol, f'url = "{parts.runtime_url}"')
    worker = parts.worker()
    eventually(lambda: parts.rows("SELECT 1 FROM worker WHERE state = 'unhealthy'"), "it is found out")
    assert said in worker.log.read_text()
    assert worker.ended() is None  # it waits for another one
    assert runtime.ended() is None
    assert parts.answers("/health")
