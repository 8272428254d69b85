"""`python -m services.judging`: ask and read as a protocol does, without a service.

read --protocol NAME   NDJSON {"id", "completion", "finish_reason", "labels"?} on stdin, one reading a line on stdout
ask --protocol NAME    NDJSON items {"context", "candidates"} on stdin, the messages that ask about each on stdout

`labels` are for families that can be made with labels; the others keep their own. Exit status 2: a line or a name is
wrong.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from services.foundation.errors import AssizesError
from services.judging.protocol import Message, Pair
from services.judging.registry import names, option_names, protocol
from services.vocabulary import FinishReason

FIELDS = (
    *("outcome", "winner", "flags", "seed_verdict", "score_1", "score_2", "ranking", "form", "sentences", "text"),
    *("rule", "span"),
)


def read(name: str, line: dict[str, Any]) -> dict[str, Any]:
    """One completion, read. What a family has no notion of is null."""
    labels = {"labels": line["labels"]} if line.get("labels") and "labels" in option_names(name) else {}
    reading = protocol(name, labels).read(line["completion"], FinishReason(line["finish_reason"])).as_json()
    return {"id": line.get("id")} | {field: reading.get(field) for field in FIELDS}


def ask(name: str, line: dict[str, Any]) -> list[dict[str, str]]:
    """One item's messages, with its first candidate in the first slot."""
    context = tuple(Message(turn["role"], turn["content"]) for turn in line["context"])
    first, second = (candidate["content"] for candidate in line["candidates"])
    messages = protocol(name).messages(Pair(context, first, second))
    return [{"role": message.role, "content": message.content} for message in messages]


COMMANDS: dict[str, Callable[[str, dict[str, Any]], object]] = {"read": read, "ask": ask}


def main() -> int:
    """Run one command over stdin."""
    parser = argparse.ArgumentParser(prog="python -m services.judging", description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--protocol", required=True, choices=names())
    arguments = parser.parse_args()
    for number, line in _lines():
        try:
            answer = COMMANDS[arguments.command](arguments.protocol, json.loads(line))
        except (AssizesError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(f"line {number}: {type(error).__name__}: {error}", file=sys.stderr)
            return 2
        # ASCII, so that NUL and lone surrogates pass as they came.
        print(json.dumps(answer), flush=True)
    return 0


def _lines() -> Iterator[tuple[int, str]]:
    """Lines end with a line feed alone: other separators are data."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        text = line.decode("utf-8")
        if text.strip():
            yield number, text


if __name__ == "__main__":
    sys.exit(main())
