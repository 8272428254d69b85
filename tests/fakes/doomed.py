"""A part of the service that dies at a named point, or whose clock is wrong: the product itself, wrapped from outside.

`python -m tests.fakes.doomed HOW ... -- workers gpu --model NAME` (or `-- api --port N`). It dies by SIGKILL, with all
of its process group, so that nothing of it gets to say a last word.
"""

import argparse
import importlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Any


def die() -> None:
    """End this part, gunicorn's parent too."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def wrap(target: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put `wrapper(function)` in the place of the function `module:name` or `module:Class.name`."""
    module, _, path = target.partition(":")
    holder: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        holder = getattr(holder, part)
    setattr(holder, name, wrapper(getattr(holder, name)))


def dying(nth: int, *, before: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper with which the `nth` call, of all threads together, is the last one."""
    calls = itertools.count(1)

    def wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
        def doomed(*arguments: Any, **named: Any) -> Any:
            last = next(calls) == nth
            if last and before:
                die()
            result = function(*arguments, **named)
            if last:
                die()
            return result

        return doomed

    return wrapper


def allergic(poison: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper of `Judge.questions` with which asking about a text that holds `poison` is the last thing done."""

    def wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
        def questions(judge: Any, wanted: Any, sampling: Any) -> Any:
            if any(poison in turn.content for proceeding, key in wanted for turn in proceeding.showing(key).context):
                die()
            return function(judge, wanted, sampling)

        return questions

    return wrapper


def shift_clock(seconds: float) -> None:
    """Set this process's wall clock wrong, as far as our own modules read it. What they import is loaded already."""
    real = time.time
    time.time = lambda: real() + seconds

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=seconds)

    for name, module in list(sys.modules.items()):
        if name.startswith(("services.", "workers.")) and getattr(module, "datetime", None) is datetime:
            module.datetime = Shifted  # type: ignore[attr-defined]


def main(arguments: list[str]) -> int:
    """Run a part until it ends or dies. Returns its exit status."""
    at = arguments.index("--")
    how, (part, *its_own) = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.doomed")
    parser.add_argument("--before", help="die before this function is called: module:name or module:Class.name")
    parser.add_argument("--after", help="die when it has returned")
    parser.add_argument("--nth", type=int, default=1, help="at which call of it")
    parser.add_argument("--poison", help="die when asking about a text that holds this")
    parser.add_argument("--clock", type=float, default=0.0, help="seconds by which the clock is ahead")
    given = parser.parse_args(how)
    run: Callable[[list[str]], int] = importlib.import_module(f"{part}.__main__").main
    if target := given.before or given.after:
        wrap(target, dying(given.nth, before=given.before is not None))
    if given.poison:
        wrap("services.judging.judge:Judge.questions", allergic(given.poison))
    if given.clock:
        shift_clock(given.clock)
    return run(its_own)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
