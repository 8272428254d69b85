"""The defaults in a model's entry in the fleet: none is ignored without a word."""

from typing import Any

import pytest

from services.foundation.errors import Misconfigured
from services.foundation.fleet import FleetModel
from services.jobs.options import check_defaults


def entry(protocol: str, **fields: Any) -> FleetModel:
    return FleetModel.model_validate({"name": "m", "protocol": protocol, "weights": "w", **fields})


@pytest.mark.parametrize(
    ("protocol", "fields", "idle"),
    [
        ("reward", {"options": {"mode": "direct", "samples": 2}}, r"options\.mode, options\.samples$"),
        ("reward", {"options": {"sampling": {"top_k": 5}}}, r"options\.sampling$"),
        ("reward", {"sampling": {"temperature": 0.5}}, r"sampling\.temperature$"),
        ("reappraisal", {"options": {"sampling": {"top_k": 5}, "orders": "given"}}, r"has no use for options\.orders$"),
    ],
)
def test_a_default_that_a_model_cannot_use_is_refused(protocol: str, fields: dict[str, Any], idle: str) -> None:
    with pytest.raises(Misconfigured, match=idle):
        check_defaults(entry(protocol, **fields))


@pytest.mark.parametrize(
    ("protocol", "fields"),
    [
        ("reward", {}),
        ("reappraisal", {"options": {"sampling": {"top_k": 5}}, "sampling": {"temperature": 0.5}}),
        ("sdrm", {"options": {"mode": "direct", "sampling": {"top_k": 5}}, "sampling": {"temperature": 0.5}}),
        ("not-installed-here", {"options": {"mode": "direct"}}),
    ],
)
def test_what_a_model_can_use_is_a_default(protocol: str, fields: dict[str, Any]) -> None:
    check_defaults(entry(protocol, **fields))


def test_a_default_that_is_no_option_is_refused() -> None:
    with pytest.raises(Misconfigured, match="the options of the model m are wrong"):
        check_defaults(entry("sdrm", options={"mode": "fast"}))
