"""`python -m services.judging`: what it prints, and how it names what is wrong."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ITEM = {
    "context": [{"role": "user", "content": "why\ud835?"}],
    "candidates": [{"content": "Paris."}, {"content": "Lyon."}],
}


def run(*arguments: str, stdin: str, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"PYTHONPATH": str(site)} if site else {})
    command = [sys.executable, "-m", "services.judging", *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, encoding="utf-8", cwd=ROOT, env=environment, check=False
    )


def test_read_answers_line_by_line() -> None:
    lines = [
        {"id": 1, "completion": "x \ud835\x00\u2028 <verdict>B</verdict>", "finish_reason": "stop"},
        {"id": 2, "completion": "<verdict>tie</verdict>", "finish_reason": "stop", "labels": ["A", "B", "tie"]},
        {"id": 3, "completion": "<verdict>tie</verdict>", "finish_reason": "length"},
    ]
    done = run("read", "--protocol", "prompted", stdin="\n\n".join(map(json.dumps, lines)))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(answer["id"], answer["outcome"], answer["winner"]) for answer in answers] == [
        (1, "decided", "B"),
        (2, "tie", "tie"),
        (3, "truncated", None),
    ]
    assert list(answers[0]) == [
        *(
            "id",
            "outcome",
            "winner",
            "flags",
            "seed_verdict",
            "score_1",
            "score_2",
            "ranking",
            "form",
            "sentences",
            "text",
        ),
        *("rule", "span"),
    ]
    assert answers[0]["span"] == [15, 16]
    assert answers[0]["score_1"] is None


def test_ask_prints_the_messages_of_an_item() -> None:
    done = run("ask", "--protocol", "sdrm", stdin=json.dumps(ITEM))
    (message,) = json.loads(done.stdout)
    assert message["role"] == "user"
    assert "<user>\nwhy\ud835?\n</user>" in message["content"]
    assert message["content"].index("Paris.") < message["content"].index("Lyon.")


def test_options_make_the_family() -> None:
    line = {"completion": "<score>4</score>", "finish_reason": "stop"}
    read = run("read", "--protocol", "prompted", "--options", '{"grades": 5}', stdin=json.dumps(line))
    reading = json.loads(read.stdout)
    assert (reading["outcome"], reading["winner"], reading["score_1"]) == ("decided", None, 4)
    ask = run("ask", "--protocol", "prompted", "--options", '{"grades": 5}', stdin=json.dumps(ITEM))
    paris, lyon = [json.loads(line)[0]["content"] for line in ask.stdout.splitlines()]
    assert ("Paris." in paris, "Lyon." in paris, "Paris." in lyon, "Lyon." in lyon) == (True, False, False, True)


def test_options_that_make_no_family_are_named() -> None:
    done = run("ask", "--protocol", "sdrm", "--options", '{"grades": 5}', stdin=json.dumps(ITEM))
    assert done.returncode == 2
    assert "the protocol sdrm has no option grades" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{",
        '{"completion": "x"}',
        '{"completion": 1, "finish_reason": "stop"}',
        '{"completion": "x", "finish_reason": "tired"}',
    ],
)
def test_a_wrong_line_is_named(line: str) -> None:
    done = run("read", "--protocol", "sdrm", stdin=f"\n{line}\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("line 2: ")


@pytest.fixture
def site() -> Iterator[Path]:
    """A folder of installed packages."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def install(site: Path, name: str, entry: str) -> None:
    """Lay a package's metadata, with one entry point, where Python looks for it."""
    metadata = site / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[assizes.protocols]\n{entry}\n", encoding="utf-8")


def test_two_families_cannot_share_a_name(site: Path) -> None:
    install(site, "usurper", "sdrm = usurper:Sdrm")
    done = run("ask", "--protocol", "sdrm", stdin="", site=site)
    assert done.returncode != 0
    assert "two protocols are called sdrm" in done.stderr
