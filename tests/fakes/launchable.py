"""An interpreter that "has SGLang": a worker launches it, and gets the scripted runtime instead.

Each start adds a line of JSON to `starts.jsonl` in the folder where the runtime was to run.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embedded.places import CHECKOUT

PROGRAM = """#!{python}
import json, os, sys
given = sys.argv[1:]
assert given[:3] == ["-P", "-m", "sglang.launch_server"], given
def value(flag):
    return given[given.index(flag) + 1]
def starts():
    return sum(1 for _ in open("starts.jsonl"))
start = {{"port": int(value("--port")), "pid": os.getpid(), "session": os.getsid(0), "cwd": os.getcwd()}}
start["environment"] = dict(os.environ)
with open("starts.jsonl", "a") as file:
    print(json.dumps(start), file=file)
{before}
scripted = ["-m", "embedded", "scripted", "--port", value("--port"), "--tokenizer", value("--model-path")]
scripted += ["--model", value("--served-model-name"), "--context-length", value("--context-length")]
scripted += ["--is-embedding"] if "--is-embedding" in given else []
os.chdir({checkout!r})
os.execv({python!r}, [{python!r}, *scripted, *{more!r}])
"""


def interpreter(folder: Path, *more: str, before: str = "") -> Path:
    """Make one. It runs the Python of `before`, in which `starts()` counts them, then the runtime with `more` flags."""
    file = folder / "python"
    text = PROGRAM.format(python=sys.executable, before=before, checkout=str(CHECKOUT), more=list(more))
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)
    return file


def starts(folder: Path) -> Sequence[dict[str, Any]]:
    """The starts so far."""
    file = folder / "starts.jsonl"
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
