"""A reappraisal job's report counts the right things over the right denominators, and says what flatters them."""

import json

import pytest

from services.contract.jobs import NOT_CLINICAL
from services.contract.reports import Report
from services.contract.reports.reappraisal import ReappraisalReport
from services.reports.committee import Assessed, ScoredText
from services.reports.reappraisal.build import build
from services.reports.reappraisal.item import Attempt, ReappraisalRow, reappraisal_row
from services.vocabulary import Flag, ItemError, ItemStatus, JobStatus, Outcome
from tests.unit.reports.reappraisal_rows import committee, reappraisals, reappraised, scored, text
from tests.unit.reports.rows import judge, opinion


def codes(report: ReappraisalReport) -> set[str]:
    return {note.code for note in report.notes}


def test_the_gate_is_counted_by_text_and_its_failures_by_item() -> None:
    rows = [
        reappraised(0, text(sentences=1)),
        reappraised(1, text(Outcome.TOO_LONG, 3), text(Outcome.EMPTY, 0, attempt=1), text(sentences=2, attempt=2)),
        reappraised(2, text(Outcome.TRUNCATED, None), text(Outcome.TRUNCATED, None, 1), error=ItemError.GATED),
        reappraised(3, text(Outcome.FAILED, None), text(sentences=2)),
    ]
    report = build(reappraisals(status=JobStatus.COMPLETED_WITH_ERRORS), None, 5, rows)
    gate = report.gate
    assert (gate.accepted.count, gate.accepted.n, gate.accepted.rate) == (3, 7, pytest.approx(3 / 7))
    assert gate.outcomes == {
        Outcome.ACCEPTED: 3,
        Outcome.EMPTY: 1,
        Outcome.TOO_LONG: 1,
        Outcome.UNPARSEABLE: 0,
        Outcome.TRUNCATED: 2,
    }
    assert gate.unwritten == {
        Outcome.CONTEXT_OVERFLOW: 0,
        Outcome.ABORTED: 0,
        Outcome.FAILED: 1,
        Outcome.POISONED: 0,
    }
    assert (gate.repeated.count, gate.repeated.n) == (3, 7)
    assert (gate.none_passed.count, gate.none_passed.n) == (1, 4)
    assert (gate.chosen, gate.sentences) == (3, pytest.approx(5 / 3))
    assert (report.items.total, report.items.heard, report.items.succeeded.count) == (5, 4, 3)
    assert report.items.errors == {ItemError.GATED: 1}
    assert (report.usage.calls, report.usage.prompt_tokens, report.usage.cached.rate) == (12, 400, 0.25)
    assert (report.usage.seconds, report.usage.calls_per_second) == (10, 1.2)
    assert (report.committee, report.comparison) == (None, None)
    assert codes(report) == {"not_clinical", "incomplete", "failures", "no_clusters"}


def test_a_job_nobody_has_heard_yet_has_no_rates() -> None:
    job = reappraisals(status=JobStatus.QUEUED, committee="reappraisal", compare=judge())
    report = build(job, committee(), 7, [])
    assert (report.items.heard, report.gate.accepted.rate, report.gate.sentences) == (0, None, None)
    assert report.committee is not None
    assert (report.committee.scored.rate, report.committee.score, report.committee.chosen_score) == (None, None, None)
    assert report.comparison is not None
    assert (report.comparison.compared.rate, report.comparison.overall.rate) == (None, None)
    assert (report.comparison.overall.bootstrap, report.comparison.baselines) == (None, ())
    assert codes(report) == {"not_clinical", "incomplete", "pool_unknown"}


def test_an_item_for_which_nothing_was_written_is_no_failure_of_the_gate() -> None:
    rows = [reappraised(0), reappraised(1, error=ItemError.POISONED, attempts=None, selected=None)]
    report = build(reappraisals(), None, 2, rows)
    assert (report.gate.none_passed.count, report.gate.none_passed.n) == (0, 1)
    assert (report.items.failed.count, report.items.failed.n) == (1, 2)


@pytest.mark.parametrize("fault", [Outcome.CONTEXT_OVERFLOW, Outcome.ABORTED, Outcome.FAILED, Outcome.POISONED])
def test_what_was_never_written_did_not_fail_at_the_gate(fault: Outcome) -> None:
    rows = [
        reappraised(0, text(), text(fault, None, attempt=1)),
        reappraised(1, text(fault, None), text(fault, None), error=ItemError.RUNTIME_ERROR),
        reappraised(2, text(Outcome.EMPTY, 0), text(fault, None), error=ItemError.RUNTIME_ERROR),
    ]
    gate = build(reappraisals(), None, 3, rows).gate
    assert (gate.accepted.count, gate.accepted.n) == (1, 2)
    assert (gate.repeated.count, gate.repeated.n) == (0, 2)
    assert (gate.none_passed.count, gate.none_passed.n) == (1, 2)
    assert {outcome: count for outcome, count in gate.unwritten.items() if count} == {fault: 4}
    assert fault not in gate.outcomes


def test_tokens_that_classifiers_read_are_in_no_rate_of_cached_ones() -> None:
    rows = [reappraised(seq, classified_tokens=60) for seq in range(2)]
    usage = build(reappraisals(), None, 2, rows).usage
    assert (usage.prompt_tokens, usage.cached.count, usage.cached.n, usage.cached.rate) == (200, 50, 80, 0.625)


def test_whoever_read_an_item_may_suspect_it() -> None:
    flagged = opinion(flags=frozenset({Flag.INJECTION_SUSPECTED}))
    rows = [
        reappraised(0, suspected=True),
        reappraised(1, baselines=("x",), opinion=flagged),
        reappraised(2, baselines=("x",), opinion=flagged, suspected=True),
        reappraised(3, baselines=("x",), opinion=opinion()),
    ]
    items = build(reappraisals(compare=judge()), None, 4, rows).items
    assert (items.injection_suspected.count, items.injection_suspected.n) == (3, 4)


def test_every_report_says_that_it_is_no_clinical_tool() -> None:
    (first, *_) = build(reappraisals(), None, 1, [reappraised(0)]).notes
    assert (first.code, first.message) == ("not_clinical", NOT_CLINICAL)


@pytest.mark.parametrize(
    ("job", "warned"),
    [
        ({}, set()),
        ({"compare": judge()}, set()),
        ({"compare": judge(), "candidates": 2}, {"pool_unknown"}),
        ({"compare": judge(), "committee": "reappraisal"}, {"pool_unknown"}),
        ({"candidates": 2, "committee": "reappraisal"}, set()),
        ({"compare": judge(), "candidates": 2, "pool": "fresh"}, set()),
        ({"compare": judge(), "candidates": 2, "pool": "fresh", "selected_on": ("six", "seven")}, set()),
        ({"compare": judge(), "candidates": 2, "pool": "six", "selected_on": ("six", "seven")}, {"pool_shared"}),
        ({"pool": "six", "selected_on": ("six",)}, {"pool_shared"}),
        ({"compare": judge("grm"), "committee": "reappraisal", "pool": "fresh"}, {"winners_curse"}),
        ({"compare": judge("seeds"), "committee": "reappraisal", "pool": "fresh"}, set()),
    ],
)
def test_selecting_and_evaluating_by_the_same_is_warned_of(job: dict[str, object], warned: set[str]) -> None:
    chooses = committee() if "committee" in job else None
    report = build(reappraisals(**job), chooses, 1, [reappraised(0, cluster="c")])
    assert codes(report) & {"winners_curse", "pool_shared", "pool_unknown"} == warned
    assert (report.job.pool, report.job.selected_on) == (job.get("pool"), job.get("selected_on", ()))


def test_the_judge_that_chose_is_named() -> None:
    job = reappraisals(compare=judge("seed1"), committee="reappraisal", pool="fresh")
    (note,) = (note for note in build(job, committee(), 0, []).notes if note.code == "winners_curse")
    assert note.judge == "seed1"


def test_a_choice_among_several_is_said_to_overestimate_itself() -> None:
    job = reappraisals(committee="reappraisal")
    alone = build(job, committee(), 1, [reappraised(0, assessed=scored((1.0, 2.0)))])
    several = build(job, committee(), 1, [reappraised(0, text(), text(), assessed=scored((1.0, 2.0), (0.0, 0.0)))])
    assert "selected_for" not in codes(alone)
    assert "selected_for" in codes(several)


def test_scores_within_an_item_are_said_to_tell_nothing_of_quality() -> None:
    job = reappraisals(committee="reappraisal")
    within = committee(normalise="group", anchors=None)
    assert "normalised_within_items" in codes(build(job, within, 1, [reappraised(0)]))
    assert "normalised_within_items" not in codes(build(job, committee(), 1, [reappraised(0)]))


def test_rows_may_come_in_any_order() -> None:
    z = [(0.5, 1.0), (-1.0, 0.25), (2.0, 0.0)]
    rows = [
        reappraised(i, text(), assessed=scored(z[i % 3]), baselines=("x",), opinion=opinion(), cluster=f"c{i % 4}")
        for i in range(12)
    ]
    job = reappraisals(committee="reappraisal", compare=judge())
    straight, reverse = build(job, committee(), 12, rows), build(job, committee(), 12, reversed(rows))
    assert straight.comparison == reverse.comparison
    assert straight.gate == reverse.gate


def test_the_report_goes_onto_the_wire_and_comes_back() -> None:
    rows = [reappraised(0, assessed=scored((1.0, 2.0)), baselines=("\ud800",), opinion=opinion())]
    report = build(reappraisals(committee="reappraisal", compare=judge()), committee(), 1, rows)
    shown = json.loads(report.json_text())
    assert shown["kind"] == "reappraisal"
    assert shown["comparison"]["baselines"][0]["system"] == "\ud800"
    assert Report.model_validate(shown).root == report


STORED = {
    "seq": 4,
    "status": "succeeded",
    "error_code": None,
    "calls": 9,
    "prompt_tokens": 300,
    "cached_tokens": 100,
    "completion_tokens": 30,
    "classified_tokens": 120,
    "facets": '{"label":null,"cluster":"v\\u0000","systems":["gpt",null]}',
    "selected": 1,
    "texts": json.dumps(
        [
            {"candidate": 0, "attempt": 0, "outcome": "too_long", "text": "", "sentences": 3},
            {"candidate": 0, "attempt": 1, "outcome": "accepted", "text": "", "sentences": 2},
            {"candidate": 1, "attempt": 0, "outcome": "accepted", "text": "", "sentences": 1},
        ]
    ),
    "assessment": {
        "committee": "reappraisal",
        "pool": [1, 2],
        "outcomes": {"seed0": ["decided", "decided"], "seed1": ["decided", "failed"], "grm": ["decided", "decided"]},
        "texts": [
            {"text": 1, "z": {"seeds": 1.0, "grm": 2.0}, "mean": 1.5, "std": 0.5, "score": 1.25, "missing": []},
            {"text": 2, "z": {"seeds": None, "grm": 2.0}, "mean": None, "std": None, "score": None},
        ],
        "error": None,
    },
    "opinion": json.dumps(opinion().as_json()),
    "suspected": True,
}
SETTLED = {
    "seq": 4,
    "status": ItemStatus.SUCCEEDED,
    "error": None,
    "cluster": "v\0",
    "calls": 9,
    "prompt_tokens": 300,
    "cached_tokens": 100,
    "completion_tokens": 30,
    "classified_tokens": 120,
}


def test_a_row_is_made_of_what_is_stored() -> None:
    assert reappraisal_row(STORED) == ReappraisalRow(
        **SETTLED,
        attempts=(
            Attempt(0, Outcome.TOO_LONG, 3),
            Attempt(1, Outcome.ACCEPTED, 2),
            Attempt(0, Outcome.ACCEPTED, 1),
        ),
        selected=1,
        assessed=Assessed(
            texts=2,
            outcomes={
                "seed0": (Outcome.DECIDED, Outcome.DECIDED),
                "seed1": (Outcome.DECIDED, Outcome.FAILED),
                "grm": (Outcome.DECIDED, Outcome.DECIDED),
            },
            scored=(ScoredText(1, {"seeds": 1.0, "grm": 2.0}, 0.5, 1.25),),
        ),
        baselines=("gpt", None),
        opinion=opinion(),
        suspected=True,
    )


def test_a_row_of_an_item_that_came_to_nothing_is_empty() -> None:
    nothing = {"selected": None, "texts": None, "assessment": None, "opinion": None}
    made = reappraisal_row(STORED | nothing | {"status": "failed", "error_code": "poisoned"})
    assert (made.attempts, made.selected, made.assessed, made.opinion) == (None, None, None, None)
    assert (made.status, made.error) == (ItemStatus.FAILED, ItemError.POISONED)


def test_what_the_gate_alone_chose_has_no_committee() -> None:
    body = {"committee": None, "pool": [1], "outcomes": {}, "texts": [], "error": None}
    assert reappraisal_row(STORED | {"assessment": body}).assessed is None
