"""What `python -m embedded reappraise` shows of the texts."""

import json

import httpx
import pytest

from embedded.reappraise import SCENARIOS, chosen_texts
from services.foundation.jsontext import escaped

FIRST, SECOND = [json.loads(line) for line in SCENARIOS.read_text(encoding="utf-8").splitlines()][:2]


def told(*texts: str) -> str:
    """What is shown where the first scenarios got these texts."""
    items = zip((FIRST, SECOND), texts, strict=False)
    data = [{"custom_id": item["custom_id"], "reappraisal": {"text": text}} for item, text in items]

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/jobs/job_1/results"
        assert dict(request.url.params) == {"limit": "2"}
        return httpx.Response(200, text=escaped({"data": data}))

    with httpx.Client(base_url="http://api", transport=httpx.MockTransport(answer)) as client:
        return chosen_texts(client, "job_1")


def test_two_scenarios_stand_with_what_was_chosen_and_where_the_rest_is() -> None:
    shown = told("He may be sure of you.", "It was dark.")
    lines = shown.splitlines()
    assert [line for line in lines if line.startswith("  chosen")] == [
        "  chosen    He may be sure of you.",
        "  chosen    It was dark.",
    ]
    flat = " ".join(shown.split())
    assert flat.index(FIRST["scenario"]) < flat.index("He may be sure of you.") < flat.index(SECOND["scenario"])
    assert "GET /v1/jobs/job_1/results" in lines[-1]
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize("hostile", ["\x1b[2J", "\x9b31m", "\r", "\x07", "\u202e", "\n", "\ud800"])
def test_no_text_acts_on_a_terminal(hostile: str) -> None:
    (line,) = [line for line in told(f"It{hostile}may pass.").splitlines() if "may pass" in line]
    assert line.isprintable()
    assert hostile not in line
