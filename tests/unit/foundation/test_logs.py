"""Every line of a process is JSON, whoever writes it."""

import json
import subprocess
import sys
from typing import Any

from embedded.places import CHECKOUT

SETUP = """
import logging, threading, warnings
import structlog
from services.foundation.logs import set_up_logs
set_up_logs("info", "a part")
log = structlog.get_logger("services.example")
"""
ALWAYS = {"event", "level", "logger", "process", "timestamp"}


def written(script: str) -> list[dict[str, Any]]:
    """What a process writes that sets its logs up and then runs `script`."""
    command = [sys.executable, "-c", SETUP + script]
    run = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=60)
    assert run.stdout == ""
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert all(line.keys() >= ALWAYS for line in lines)
    assert {line["process"] for line in lines} <= {"a part"}
    return lines


def test_our_lines_and_those_of_a_library_have_one_form() -> None:
    ours, theirs = written(
        'structlog.contextvars.bind_contextvars(job="job_1", chunk="hear/0.0")\n'
        'log.info("written", rows=3)\n'
        'logging.getLogger("celery.worker").warning("lost %s", "the broker")\n'
    )
    assert (ours["event"], ours["level"], ours["logger"], ours["rows"]) == ("written", "info", "services.example", 3)
    assert (theirs["event"], theirs["level"]) == ("lost the broker", "warning")
    assert theirs["logger"] == "celery.worker"
    assert {(line["job"], line["chunk"]) for line in (ours, theirs)} == {("job_1", "hear/0.0")}


def test_libraries_are_heard_from_warnings_on_and_we_from_the_level_that_is_set() -> None:
    lines = written('log.debug("quiet")\nlog.info("said")\nlogging.getLogger("asyncio").info("not ours")\n')
    assert [line["event"] for line in lines] == ["said"]


def test_an_exception_is_one_line() -> None:
    (line,) = written('try:\n    1 / 0\nexcept ZeroDivisionError:\n    log.exception("failed")\n')
    assert (line["event"], line["level"]) == ("failed", "error")
    assert "ZeroDivisionError" in line["exception"]


def test_what_ends_a_thread_or_the_process_is_a_line() -> None:
    lines = written(
        "def end():\n    raise ValueError('in a thread')\n"
        "thread = threading.Thread(target=end, name='pulse')\nthread.start()\nthread.join()\n"
        "warnings.warn('old ways')\n"
        "raise OSError('at the end')\n"
    )
    assert [line["event"] for line in lines if line["logger"] != "py.warnings"] == ["thread_ended", "process_ended"]
    assert (lines[0]["thread"], lines[0]["level"]) == ("pulse", "critical")
    assert "in a thread" in lines[0]["exception"]
    assert "old ways" in lines[1]["event"]
    assert "at the end" in lines[2]["exception"]


def test_what_json_does_not_know_is_written_as_text() -> None:
    (line,) = written('import uuid\nlog.info("named", id=uuid.UUID(int=7))\n')
    assert line["id"] == "00000000-0000-0000-0000-000000000007"
