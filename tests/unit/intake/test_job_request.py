"""A job's settings: strict, complete, resolved against the fleet; its items' texts kept as sent."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.foundation.errors import Fault, Invalid, Malformed, Misconfigured, NoItems
from services.foundation.fleet import Fleet, FleetModel
from services.jobs.intake import Item
from services.jobs.request import check_fleet, read_job, read_job_with_items
from services.judging.registry import protocol
from services.vocabulary import Decide, Mode, OnConflict, Orders, Priority
from tests.factories import comparisons

FLEET = Fleet.model_validate(
    {
        "models": {
            "reasoning": {"name": "reasoning", "protocol": "sdrm", "weights": "w"},
            "direct": {
                "name": "direct",
                "protocol": "sdrm",
                "weights": "w",
                "options": {"mode": "direct", "orders": "given", "sampling": {"top_k": 5}},
                "sampling": {"temperature": 0.5, "top_k": 9, "max_tokens": 100},
            },
            "genrm": {"name": "genrm", "protocol": "genrm", "weights": "w"},
            "principled": {
                "name": "principled",
                "protocol": "genrm",
                "weights": "w",
                "protocol_options": {"principle": True},
            },
            "rubric": {
                "name": "rubric",
                "protocol": "prompted",
                "weights": "w",
                "protocol_options": {"grades": 5},
            },
        }
    }
)
LEAST: dict[str, Any] = {"kind": "judgement", "judges": ["reasoning"]}


def body(**changes: Any) -> bytes:
    return json.dumps({**LEAST, **changes}).encode()


def refused(sent: bytes) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        read_job(sent, FLEET)
    return [(fault.code, fault.pointer) for fault in caught.value.faults]


def test_the_least_that_a_job_says() -> None:
    job = read_job(body(), FLEET)
    assert (job.terms.judges, job.name, job.metadata, job.callback, job.priority, job.deadline) == (
        ("reasoning",),
        None,
        "{}",
        None,
        Priority.STANDARD,
        None,
    )
    assert job.terms.settings.panel is None
    settings = job.terms.settings.judges["reasoning"]
    assert (settings.orders, settings.samples, settings.mode, settings.decide) == (
        Orders.BOTH,
        1,
        Mode.REASON,
        Decide.VOTE,
    )
    assert (settings.forced_verdict, settings.early_stop, settings.on_conflict) == (True, "certain", OnConflict.TIE)
    assert (settings.tie_margin, settings.reading, settings.margin, settings.pairs) == (0.0, "strict", "blended", "all")
    assert settings.sampling.model_dump() == asdict(protocol("sdrm").sampling)


def test_options_come_from_the_job_then_the_model_then_the_system() -> None:
    settings = read_job(body(judges=["direct"]), FLEET).terms.settings.judges["direct"]
    assert (settings.mode, settings.decide, settings.orders) == (Mode.DIRECT, Decide.SOFT, Orders.GIVEN)
    top_p = protocol("sdrm").sampling.top_p
    assert settings.sampling.model_dump() == {"temperature": 0.5, "top_p": top_p, "top_k": 5, "max_tokens": 100}
    options = {"mode": "reason", "samples": 3, "sampling": {"temperature": 0.1, "max_tokens": 7}}
    settings = read_job(body(judges=["direct"], options=options), FLEET).terms.settings.judges["direct"]
    assert (settings.mode, settings.decide, settings.orders) == (Mode.REASON, Decide.VOTE, Orders.GIVEN)
    assert settings.samples == 3
    assert settings.sampling.model_dump() == {"temperature": 0.1, "top_p": top_p, "top_k": 5, "max_tokens": 7}


def test_null_is_absent() -> None:
    nothing = dict.fromkeys(("name", "metadata", "options", "callback", "priority", "deadline"))
    options = dict.fromkeys(
        ("orders", "samples", "mode", "decide", "forced_verdict", "early_stop", "tie_margin", "sampling")
    )
    assert read_job(body(**nothing), FLEET) == read_job(body(), FLEET)
    assert read_job(body(options=options), FLEET) == read_job(body(), FLEET)


@pytest.mark.parametrize(
    ("options", "candidates", "calls"),
    [
        ({}, 2, {"reasoning": 2}),
        ({"samples": 3}, 2, {"reasoning": 6}),
        ({"orders": "given"}, 2, {"reasoning": 1}),
        ({"orders": "random"}, 2, {"reasoning": 1}),
        ({}, 16, {"reasoning": 240}),
        ({"pairs": "circular", "samples": 2}, 5, {"reasoning": 20}),
        ({"pairs": [[0, 1], [1, 2]]}, 3, {"reasoning": 4}),
        ({"samples": 2, "sampling": {"temperature": 0.5}}, 5, {"rubric": 10}),
        ({}, 3, {"rubric": 3, "reasoning": 6}),
    ],
)
def test_calls_of_an_item(options: dict[str, Any], candidates: int, calls: dict[str, int]) -> None:
    terms = read_job(body(judges=list(calls), options=options), FLEET).terms
    assert terms.calls_per_item(candidates) == {"hear": calls}


def test_a_family_decides_in_its_own_way() -> None:
    job = read_job(body(judges=["genrm", "rubric", "reasoning", "direct"]), FLEET)
    assert {name: settings.decide for name, settings in job.terms.settings.judges.items()} == {
        "genrm": Decide.SCORES,
        "rubric": Decide.SCORES,
        "reasoning": Decide.VOTE,
        "direct": Decide.SOFT,
    }


def test_a_panel() -> None:
    options = {"panel": {"decide": "mean", "weights": {"direct": 2}}, "principle": "Be kind.\nBe brief."}
    settings = read_job(body(judges=["reasoning", "direct", "principled"], options=options), FLEET).terms.settings
    assert settings.panel is not None
    assert (settings.panel.decide, settings.panel.tie_margin) == ("mean", 0.0)
    assert settings.panel.weights == {"reasoning": 1.0, "direct": 2.0, "principled": 1.0}
    assert [judge.principle for judge in settings.judges.values()] == [None, None, "Be kind.\nBe brief."]


@pytest.mark.parametrize("name", ["pairs", "score_policies", "panel"])
def test_what_concerns_items_or_panels_is_no_default_of_a_model(name: str) -> None:
    model = {"name": "m", "protocol": "sdrm", "weights": "w", "options": {name: None}}
    with pytest.raises(Misconfigured, match=name):
        check_fleet(Fleet.model_validate({"models": {"m": model}}))


def test_listed_pairs_say_how_many_candidates_items_have() -> None:
    job = body(options={"pairs": [[0, 1], [2, 1]]}, items=comparisons(2))
    _, items = read_job_with_items(job, FLEET)
    assert [(fault.pointer, fault.code) for fault in items] == [
        ("/items/0/candidates", "invalid_value"),
        ("/items/1/candidates", "invalid_value"),
    ]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"kind": "ranking"}, ("invalid_value", "/kind")),
        ({"kind": None}, ("invalid_value", "/kind")),
        ({"judges": []}, ("invalid_value", "/judges")),
        ({"judges": ["reasoning", "reasoning"]}, ("invalid_value", "/judges")),
        ({"judges": [f"judge-{n}" for n in range(9)]}, ("invalid_value", "/judges")),
        ({"judges": ["reasoning", "nobody"]}, ("unknown_model", "/judges/1")),
        ({"judges": "reasoning"}, ("invalid_value", "/judges")),
        ({"judges": [1]}, ("invalid_value", "/judges/0")),
        ({"judges": ["nobody"]}, ("unknown_model", "/judges/0")),
        ({"judge": "reasoning"}, ("unknown_field", "/judge")),
        ({"items": []}, ("unknown_field", "/items")),
        ({"name": "x" * 201}, ("invalid_value", "/name")),
        ({"name": "a\0"}, ("invalid_value", "/name")),
        ({"name": "\ud835"}, ("invalid_value", "/name")),
        ({"metadata": []}, ("invalid_value", "/metadata")),
        ({"metadata": {"x": "y" * 16384}}, ("too_large", "/metadata")),
        ({"priority": "urgent"}, ("invalid_value", "/priority")),
        ({"priority": 0}, ("invalid_value", "/priority")),
        ({"deadline": 1_800_000_000}, ("invalid_value", "/deadline")),
        ({"deadline": "2026-12-01T00:00:00"}, ("invalid_value", "/deadline")),
        ({"deadline": "soon"}, ("invalid_value", "/deadline")),
        ({"options": {"order": "both"}}, ("unknown_field", "/options/order")),
        ({"options": {"orders": "all"}}, ("invalid_value", "/options/orders")),
        ({"options": {"samples": 0}}, ("invalid_value", "/options/samples")),
        ({"options": {"samples": 17}}, ("invalid_value", "/options/samples")),
        ({"options": {"samples": 10**30}}, ("invalid_value", "/options/samples")),
        ({"options": {"samples": 2.0}}, ("invalid_value", "/options/samples")),
        ({"options": {"samples": True}}, ("invalid_value", "/options/samples")),
        ({"options": {"mode": "fast"}}, ("invalid_value", "/options/mode")),
        ({"options": {"decide": "scores"}}, ("invalid_value", "/options/decide")),
        ({"options": {"forced_verdict": "yes"}}, ("invalid_value", "/options/forced_verdict")),
        ({"options": {"early_stop": "soon"}}, ("invalid_value", "/options/early_stop")),
        ({"options": {"early_stop": {"confidence": 1}}}, ("invalid_value", "/options/early_stop")),
        ({"options": {"early_stop": {"confidence": 0.9, "test": "t"}}}, ("invalid_value", "/options/early_stop")),
        ({"options": {"early_stop": False}}, ("invalid_value", "/options/early_stop")),
        ({"options": {"pairs": "some"}}, ("invalid_value", "/options/pairs")),
        ({"options": {"pairs": []}}, ("invalid_value", "/options/pairs")),
        ({"options": {"pairs": [[0, 0]]}}, ("invalid_value", "/options/pairs")),
        ({"options": {"pairs": [[0, 1], [1, 0]]}}, ("invalid_value", "/options/pairs")),
        ({"options": {"pairs": [[0, 1], [2, 3]]}}, ("invalid_value", "/options/pairs")),
        ({"options": {"pairs": [[0, 16]]}}, ("invalid_value", "/options/pairs")),
        ({"options": {"margin": "wide"}}, ("invalid_value", "/options/margin")),
        ({"options": {"principle": "Be kind."}}, ("invalid_value", "/options/principle")),
        ({"options": {"principle": "\0"}, "judges": ["principled"]}, ("invalid_value", "/options/principle")),
        ({"options": {"principle": "Be kind."}, "judges": ["genrm"]}, ("invalid_value", "/options/principle")),
        ({"options": {"samples": 2}, "judges": ["rubric"]}, ("invalid_value", "/options/samples")),
        ({"options": {"samples": 2, "sampling": {"temperature": 0}}}, ("invalid_value", "/options/samples")),
        ({"options": {"margin": "nvidia"}}, ("invalid_value", "/options/margin")),
        ({"options": {"orders": "both"}, "judges": ["rubric"]}, ("invalid_value", "/options/orders")),
        ({"options": {"pairs": "circular"}, "judges": ["rubric"]}, ("invalid_value", "/options/pairs")),
        ({"options": {"forced_verdict": True}, "judges": ["genrm"]}, ("invalid_value", "/options/forced_verdict")),
        ({"options": {"mode": "direct"}, "judges": ["genrm"]}, ("invalid_value", "/options/mode")),
        ({"options": {"decide": "soft"}, "judges": ["genrm"]}, ("invalid_value", "/options/decide")),
        ({"options": {"decide": "vote"}, "judges": ["rubric"]}, ("invalid_value", "/options/decide")),
        ({"options": {"tie_margin": 4.5}, "judges": ["genrm"]}, ("invalid_value", "/options/tie_margin")),
        ({"options": {"panel": {"decide": "mean"}}}, ("invalid_value", "/options/panel")),
        ({"options": {"on_conflict": "abstain", "decide": "soft"}}, ("invalid_value", "/options/on_conflict")),
        ({"options": {"on_conflict": "tie"}, "judges": ["genrm"]}, ("invalid_value", "/options/on_conflict")),
        (
            {"options": {"score_policies": {"length": {"answer_bonus": -1}}}},
            ("invalid_value", "/options/score_policies/length/answer_bonus"),
        ),
        ({"options": {"score_policies": {"tone": {}}}}, ("unknown_field", "/options/score_policies/tone")),
        (
            {"options": {"score_policies": {"style": {"coefficient": 1}}}, "judges": ["reasoning", "direct"]},
            ("invalid_value", "/options/score_policies"),
        ),
        (
            {"options": {"panel": {"weights": {"nobody": 1}}}, "judges": ["reasoning", "direct"]},
            ("invalid_value", "/options/panel/weights/nobody"),
        ),
        (
            {"options": {"panel": {"weights": {"direct": 0}}}, "judges": ["reasoning", "direct"]},
            ("invalid_value", "/options/panel/weights/direct"),
        ),
        ({"options": {"tie_margin": 0.5}}, ("invalid_value", "/options/tie_margin")),
        ({"options": {"tie_margin": True}}, ("invalid_value", "/options/tie_margin")),
        ({"options": {"reading": "loose"}}, ("invalid_value", "/options/reading")),
        ({"options": {"sampling": {"seed": 1}}}, ("unknown_field", "/options/sampling/seed")),
        ({"options": {"sampling": {"temperature": 2.1}}}, ("invalid_value", "/options/sampling/temperature")),
        ({"options": {"sampling": {"temperature": "1"}}}, ("invalid_value", "/options/sampling/temperature")),
        ({"options": {"sampling": {"top_p": 0}}}, ("invalid_value", "/options/sampling/top_p")),
        ({"options": {"sampling": {"max_tokens": 0}}}, ("invalid_value", "/options/sampling/max_tokens")),
        ({"callback": {}}, ("missing_field", "/callback/url")),
        ({"callback": {"url": "ftp://example.org"}}, ("invalid_value", "/callback/url")),
        ({"callback": {"url": "https://user:pw@example.org"}}, ("invalid_value", "/callback/url")),
        ({"callback": {"url": "https://example.org", "include": "results"}}, ("invalid_value", "/callback/include")),
        ({"callback": {"url": "https://example.org", "headers": {}}}, ("unknown_field", "/callback/headers")),
    ],
)
def test_every_fault_has_its_pointer_and_code(changes: dict[str, Any], fault: tuple[str, str]) -> None:
    assert refused(body(**changes)) == [fault]


def test_metadata_may_not_be_deep() -> None:
    nested: Any = {}
    for _ in range(64):
        nested = {"x": nested}
    assert refused(body(metadata=nested)) == [("invalid_value", "/metadata")]


def test_options_that_contradict_each_other() -> None:
    assert refused(body(judges=["direct"], options={"samples": 2})) == [("invalid_value", "/options/samples")]
    assert refused(body(options={"samples": 2, "mode": "direct"})) == [("invalid_value", "/options/samples")]


def test_all_faults_are_told_at_once() -> None:
    assert refused(b'{"kind": 1, "options": {"a": 1, "b": 2}}') == [
        ("invalid_value", "/kind")
    ]  # the rest depends on it
    assert refused(b'{"scenario": 1, "options": {"a": 1, "b": 2}}') == [("missing_field", "/kind")]  # here too
    assert sorted(refused(b'{"kind": "judgement", "options": {"a": 1, "b": 2}}')) == [
        ("missing_field", "/judges"),
        ("unknown_field", "/options/a"),
        ("unknown_field", "/options/b"),
    ]


def test_at_most_a_hundred_faults_are_listed_but_all_are_counted() -> None:
    with pytest.raises(Invalid) as caught:
        read_job(body(**{f"x{n}": n for n in range(150)}), FLEET)
    assert (len(caught.value.faults), caught.value.total) == (100, 150)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"{}{}", "invalid_json"),
        (b'{"kind": "judgement", "kind": "judgement"}', "invalid_json"),
        (b'{"items": [], "items": []}', "invalid_json"),
        (b'{"items": [1, ]}', "invalid_json"),
        (b'{"items": [1}', "invalid_json"),
        (b'{"kind" "judgement"}', "invalid_json"),
        (b"{1: 2}", "invalid_json"),
        (b'{"kind": }', "invalid_json"),
        (b"\xff", "invalid_utf8"),
    ],
)
def test_a_body_that_is_not_json_is_malformed(sent: bytes, code: str) -> None:
    with pytest.raises(Malformed) as caught:
        read_job(sent, FLEET)
    assert [fault.code for fault in caught.value.faults] == [code]


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"[]", ("not_an_object", "")),
        (b"null", ("not_an_object", "")),
        (b'{"options": {"tie_margin": NaN}}', ("non_finite_number", "/options/tie_margin")),
        (b'{"metadata": {"x": [0, 1e999]}}', ("non_finite_number", "/metadata/x/1")),
        (b'{"metadata": ' + b"[" * 100_000, ("invalid_value", "")),
    ],
)
def test_json_that_is_no_job(sent: bytes, fault: tuple[str, str]) -> None:
    assert refused(sent) == [fault]


def test_items_of_a_body_are_kept_exactly_as_sent() -> None:
    context = '"context":[{"role":"user","content":"x"}]'
    first = f'{{ "custom_id" : "\\u0000é" ,{context},"candidates":[{{"content":"]"}},{{"content":"}}"}}]}}'
    items_text = f'[ {first} , 5 ,{{"custom_id": NaN}}\n]'
    metadata = f'{{ "n" : {"9" * 400} }}'
    sent = f'\ufeff{{"items" : {items_text} ,"metadata": {metadata},"kind":"judgement","judges":["direct"]}} '
    job, items = read_job_with_items(sent.encode(), FLEET)
    good, number, infinite = items
    assert isinstance(good, Item)
    assert good.input == first
    assert job.metadata == metadata
    assert number == Fault("not_an_object", "/items/1", "an item is a JSON object")
    assert isinstance(infinite, Fault)
    assert (infinite.code, infinite.pointer) == ("non_finite_number", "/items/2/custom_id")
    assert items.duplicate(2).pointer == "/items/2/custom_id"


def test_faults_of_items_point_into_the_body() -> None:
    wrong = [{**item, "candidates": [{"content": 5}, {"content": ""}]} for item in comparisons(2)]
    _, items = read_job_with_items(body(items=wrong), FLEET)
    assert [item.pointer for item in items if isinstance(item, Fault)] == [
        "/items/0/candidates/0/content",
        "/items/1/candidates/0/content",
    ]


def test_a_body_needs_items() -> None:
    with pytest.raises(Invalid) as missing:
        read_job_with_items(body(), FLEET)
    assert missing.value.faults[0].code == "missing_field"
    with pytest.raises(Invalid) as wrong:
        read_job_with_items(body(items={}), FLEET)
    assert wrong.value.faults[0].code == "invalid_value"
    with pytest.raises(NoItems) as none:
        read_job_with_items(body(items=[]), FLEET)
    assert [(fault.code, fault.pointer) for fault in none.value.faults] == [("no_items", "/items")]


def test_a_body_holds_at_most_ten_thousand_items() -> None:
    with pytest.raises(Invalid) as caught:
        read_job_with_items(body(items=[0] * 10_001), FLEET)
    assert caught.value.faults[0].code == "too_many_items"
    read_job_with_items(body(items=[0] * 10_000), FLEET)


def test_an_item_of_a_body_has_at_most_one_mebibyte() -> None:
    (large,) = comparisons(1)
    large["metadata"] = {"x": "é" * (600 << 10)}
    _, items = read_job_with_items(json.dumps({**LEAST, "items": [large]}, ensure_ascii=False).encode(), FLEET)
    assert [item.code for item in items if isinstance(item, Fault)] == ["too_large"]


def test_a_callback_is_stored_with_its_defaults() -> None:
    stored = read_job(body(callback={"url": "https://example.org/hook"}), FLEET).callback
    assert stored is not None
    assert json.loads(stored) == {
        "url": "https://example.org/hook",
        "events": ["job.completed", "job.failed", "job.cancelled", "job.expired"],
        "include": "summary",
    }


def test_wrong_default_options_stop_the_start() -> None:
    model = FleetModel(name="m", protocol="sdrm", weights="w", options={"mode": "fast"})
    with pytest.raises(Misconfigured, match="m are wrong"):
        check_fleet(Fleet(models={"m": model}))
    check_fleet(FLEET)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()))
ANY = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=())), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["kind", "judges", "name", "metadata", "options", "callback", "priority", "deadline", "items"]
OPTIONS = ["orders", "samples", "mode", "decide", "early_stop", "tie_margin", "reading", "sampling", "forced_verdict"]


@given(
    st.dictionaries(st.sampled_from(FIELDS) | st.text(), ANY, max_size=5),
    st.dictionaries(st.sampled_from(OPTIONS), ANY, max_size=3),
)
def test_any_json_is_a_job_or_is_refused(changes: dict[str, Any], options: dict[str, Any]) -> None:
    sent = json.dumps({**LEAST, "items": comparisons(1), "options": options, **changes}).encode()
    try:
        job, items = read_job_with_items(sent, FLEET)
    except Invalid:
        return
    assert FLEET.models.keys() >= set(job.terms.judges)
    assert list(items)
