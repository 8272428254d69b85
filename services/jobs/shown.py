"""An item's result, as JSON text ready to be sent (`contract.results.Result`).

Guarantee: what callers and models wrote is spliced in unchanged.
"""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import RowMapping

from services.foundation.jsontext import escaped
from services.vocabulary import ItemStatus, JobKind

OF_PANELS = ("missing", "disagreement")  # what only the verdicts of panels have


def result(row: RowMapping) -> str:
    """A result without its closing brace."""
    error = "null"
    if row["status"] == ItemStatus.FAILED:
        error = escaped({"code": row["error_code"], "message": row["error_message"]})
    usage = {name: row[name] for name in ("calls", "prompt_tokens", "cached_tokens", "completion_tokens")}
    return (
        f'{{"custom_id":{row["custom_id"]},"seq":{row["seq"]},"status":"{row["status"]}",'
        f'{_came(row)},"error":{error},"usage":{escaped(usage)}'
    )


def _came(row: RowMapping) -> str:
    """What the item came to, by its job's kind."""
    match JobKind(row["kind"]):
        case JobKind.JUDGEMENT:
            return f'"verdict":{_verdict(row)}'
        case JobKind.REAPPRAISAL:
            return f'"verdict":null,"reappraisal":{_reappraisal(row)}'
        case JobKind.SCORING:
            return f'"verdict":null,{escaped(_scored(row))[1:-1]}'


def _verdict(row: RowMapping) -> str:
    if row["status"] != ItemStatus.SUCCEEDED:
        return "null"
    answer = _answer(row) | (row["standing"] or {})
    answer |= {name: row[name] for name in OF_PANELS if row[name] is not None}
    return f'{escaped(answer)[:-1]},"opinions":[{row["opinions"] or ""}]}}'


def _answer(row: RowMapping) -> dict[str, Any]:
    return {name: row[name] for name in ("winner", "p_a", "consistent")}


def _reappraisal(row: RowMapping) -> str:
    """All that was written, once it is; the choice and its comparison where they are there."""
    if row["texts"] is None:
        return "null"
    texts, body = json.loads(row["texts"]), row["assessment"] or {}
    assessed = _assessed(body)
    candidates = [text | assessed.get(place, UNASSESSED) for place, text in enumerate(texts)]
    selected = row["selected"]
    shown = {
        "text": None if selected is None else texts[selected]["text"],
        "selected": selected,
        "eligible": body.get("pool"),
        "candidates": candidates,
    } | _provenance(body)
    shown["flags"] = sorted({*row["flags"], *(shown["flags"] or ())})
    return f'{escaped(shown)[:-1]},"comparison":{_comparison(row)}}}'


def _comparison(row: RowMapping) -> str:
    """How the chosen text compares with the item's baselines: `A` and 0 are the chosen text."""
    if not row["judges"] or row["status"] != ItemStatus.SUCCEEDED:
        return "null"
    opinion = json.loads(row["opinions"]) if row["opinions"] else None
    reason = "missing" if opinion is None else opinion["reason"]
    return f'{escaped(_answer(row) | {"reason": reason})[:-1]},"opinions":[{row["opinions"] or ""}]}}'


def _scored(row: RowMapping) -> dict[str, Any]:
    body = row["assessment"] or {}
    return _assessed(body).get(0, UNASSESSED) | _provenance(body)


UNASSESSED: dict[str, Any] = dict.fromkeys(("score", "mean", "std", "scores", "missing", "models"))


def _assessed(body: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """What the committee says of each text, by the text's place."""
    assessed = {}
    for index, one in enumerate(body.get("texts", ())):
        scores = {member: {"raw": _number(raw), "z": _number(one["z"][member])} for member, raw in one["raw"].items()}
        assessed[one["text"]] = {name: _number(one[name]) for name in ("score", "mean", "std")} | {
            "scores": scores,
            "missing": one["missing"],
            "models": {
                model: {
                    "raw": _number(values[index]),
                    "outcome": body["outcomes"][model][index],
                    "valid": body["samples"][model][index][0],
                    "asked": body["samples"][model][index][1],
                }
                for model, values in body["values"].items()
            },
        }
    return assessed


def _number(stored: float | None) -> float | None:
    """A score as a float: PostgreSQL writes 1e20 with all its digits, a whole number that few readers of JSON take."""
    return None if stored is None else float(stored)


def _provenance(body: Mapping[str, Any]) -> dict[str, Any]:
    """Who scored, in which starts of their runtimes, by how many anchors, and what a reader should know beside it."""
    return {name: body.get(name) for name in ("committee", "epochs", "anchors", "absent", "flags")}
