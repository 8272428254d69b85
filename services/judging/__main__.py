"""`python -m services.judging`: ask and read as a protocol does, without a service.

read --protocol NAME   NDJSON {"id", "completion", "finish_reason", "labels"?} on stdin, one reading a line on stdout
ask --protocol NAME    NDJSON items {"context", "candidates", "principle"?} on stdin, the messages on stdout:
                       one line with the first two candidates, or for a pointwise family one for each candidate

--options JSON makes the family with these options, as a fleet file's `protocol_options` do. `labels` are for families
that can be made with labels; the others keep their own. Exit status 2: a line or a name is
wrong.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from services.foundation.errors import AssizesError
from services.judging.protocol import Showing, messages
from services.judging.registry import names, option_names, protocol
from services.vocabulary import FinishReason, Task

FIELDS = (
    *("outcome", "winner", "flags", "seed_verdict", "score_1", "score_2", "ranking", "form", "sentences", "text"),
    *("rule", "span"),
)


def read(name: str, options: dict[str, Any], line: dict[str, Any]) -> Iterator[object]:
    """One completion, read. What a family has no notion of is null."""
    labels = {"labels": line["labels"]} if line.get("labels") and "labels" in option_names(name) else {}
    family = protocol(name, options | labels)
    reading = family.read(line["completion"], FinishReason(line["finish_reason"])).as_json()
    reading |= {f"score_{slot}": score for slot, score in enumerate(reading["scores"], start=1)}
    if family.task is Task.WRITE:
        begin, end = reading["span"] or (0, 0)
        reading["text"] = line["completion"][begin:end]
    yield {"id": line.get("id")} | {field: reading.get(field) for field in FIELDS}


def ask(name: str, options: dict[str, Any], line: dict[str, Any]) -> Iterator[object]:
    """One item's messages, with its first candidate in the first slot."""
    family = protocol(name, options)
    context = messages(line["context"])
    texts = tuple(candidate["content"] for candidate in line.get("candidates", ()))
    for slots in ((text,) for text in texts) if family.slots == 1 else (texts[: family.slots],):
        showing = Showing(context, slots, line.get("principle"))
        yield [{"role": message.role, "content": message.content} for message in family.messages(showing)]


COMMANDS: dict[str, Callable[[str, dict[str, Any], dict[str, Any]], Iterator[object]]] = {"read": read, "ask": ask}


def main() -> int:
    """Run one command over stdin."""
    parser = argparse.ArgumentParser(prog="python -m services.judging", description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--protocol", required=True, choices=names())
    parser.add_argument("--options", type=json.loads, default={}, help="what to make the family with, as JSON")
    arguments = parser.parse_args()
    for number, line in _lines():
        try:
            answers = list(COMMANDS[arguments.command](arguments.protocol, arguments.options, json.loads(line)))
        except (AssizesError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(f"line {number}: {type(error).__name__}: {error}", file=sys.stderr)
            return 2
        # ASCII, so that NUL and lone surrogates pass as they came.
        for answer in answers:
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
