"""The scripted runtime against recordings of a real SGLang 0.5.23: the same requests get the same keys and types."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.server import Server

GENERATED = [
    *("generate", "generate_input_ids", "generate_rid", "generate_unknown_field_ignored", "generate_defaults"),
    *("generate_logprob_token_ids", "generate_stream"),
]
REFUSED = [
    *("err_generate_no_input", "err_generate_too_long", "err_generate_max_new_over", "err_bad_json_generate"),
    *("err_generate_unknown_sampling_param", "err_404", "v1_models_unknown"),
]
REPORTED = ["v1_loads", "v1_models", "model_info", "get_model_info", "server_info", "ready", "health", "flush_cache"]
# of a report only an operator's share may be missing: how embeddings are served, and figures of a disaggregated server
OPERATORS = {"embedding", "disaggregation", "decode_moments", "graph", "headers"}
# keys of a completion that depend on how it went
SOMETIMES = {"decode_throughput", "length", "matched"}


def recording(shared: Path, name: str) -> dict[str, Any]:
    """One exchange."""
    exchange: dict[str, Any] = json.loads((shared / "sglang-recordings" / f"{name}.json").read_text())
    return exchange


def replayed(server: Server, exchange: dict[str, Any]) -> Any:
    """What the scripted runtime answers to the recorded request: (status, body)."""
    request = exchange["request"]
    if request["method"] == "GET":
        response = server.get(request["path"])
    else:
        body = request["body"]
        if isinstance(body, dict) and isinstance(body.get("input_ids"), str):  # "[5] * 3000"
            token, count = json.loads(body["input_ids"].split(" * ")[0]), int(body["input_ids"].split(" * ")[1])
            body = {**body, "input_ids": token * count}
        response = server.post(request["path"], body or {})
    return response.status_code, parsed(response.text)


def parsed(text: Any) -> Any:
    """JSON, the events of a stream, or text."""
    if not isinstance(text, str):
        return text
    if text.startswith("data: "):
        return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n") if event.startswith("data: {")]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def differences(real: Any, ours: Any, at: str = "$") -> list[str]:
    """Where keys or types differ. A null may stand for anything; of lists the first elements are compared."""
    if isinstance(real, dict) and isinstance(ours, dict):
        missing = [f"{at}.{key}: missing" for key in real.keys() - ours.keys() - OPERATORS - SOMETIMES]
        deeper = [differences(real[key], ours[key], f"{at}.{key}") for key in real.keys() & ours.keys()]
        return missing + [found for part in deeper for found in part]
    if isinstance(real, list) and isinstance(ours, list):
        return differences(real[0], ours[0], f"{at}[0]") if real and ours else []
    if real is None or ours is None or type(real) is type(ours):
        return []
    if {type(real), type(ours)} == {int, float}:
        return []
    return [f"{at}: {type(ours).__name__} instead of {type(real).__name__}"]


@pytest.mark.parametrize("name", GENERATED + REPORTED)
def test_answers_have_the_recorded_keys_and_types(scripted_server: Server, shared: Path, name: str) -> None:
    exchange = recording(shared, name)
    status, ours = replayed(scripted_server, exchange)
    real = parsed(exchange["response"]["body"])
    assert status == exchange["response"]["status"] == 200
    assert differences(real, ours) == []


@pytest.mark.parametrize("name", GENERATED)
def test_completions_have_no_key_that_the_real_ones_lack(scripted_server: Server, shared: Path, name: str) -> None:
    exchange = recording(shared, name)
    _, ours = replayed(scripted_server, exchange)
    real = parsed(exchange["response"]["body"])
    extra = [found for found in differences(ours, real) if found.endswith("missing")]
    assert extra == []


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_have_the_recorded_status_and_shape(scripted_server: Server, shared: Path, name: str) -> None:
    exchange = recording(shared, name)
    status, ours = replayed(scripted_server, exchange)
    assert status == exchange["response"]["status"]
    assert differences(exchange["response"]["body"], ours) == []


def test_abort_answers_have_the_recorded_shape(scripted_server: Server, shared: Path) -> None:
    with scripted_server.telling_stories("one", "two", "queued") as answers:
        for rid in ("queued", "one"):
            scripted_server.abort(rid)
    for rid, name in (("one", "abort_generate_rid"), ("queued", "abort_queued_generate")):
        real = recording(shared, name)["response"]["body"]
        assert differences(real, answers[rid].json()) == []
        assert differences(answers[rid].json(), real) == []
