"""A scoring job's report has the mean scores that numpy makes, over the texts that every member scored."""

import json

import numpy as np
import pytest
from scipy import stats

from services.contract.reports import Report
from services.contract.reports.scoring import ScoringReport
from services.reports.committee import Assessed, ScoredText
from services.reports.rates import MAX_SYSTEMS
from services.reports.scoring.build import build
from services.reports.scoring.item import ScoringRow, scoring_row
from services.vocabulary import ItemError, ItemStatus, JobStatus, Outcome
from tests.unit.reports.reappraisal_rows import DECIDED, committee, guarded, response, scorings, unscored


def of(*rows: ScoringRow, total: int | None = None) -> ScoringReport:
    return build(scorings(), committee(), len(rows) if total is None else total, rows)


def codes(report: ScoringReport) -> set[str]:
    return {note.code for note in report.notes}


def test_the_mean_score_of_a_system_has_intervals_over_clusters() -> None:
    generator = np.random.default_rng(9)
    z = generator.normal(size=(8, 5, 2)) + generator.normal(size=(8, 1, 1))
    rows = [response(seq, *one, system="ours", cluster=f"c{seq // 5}") for seq, one in enumerate(z.reshape(-1, 2))]
    (ours,) = of(*rows).systems
    scores = z.mean(axis=2) - 0.5 * z.std(axis=2)
    means = scores.mean(axis=1)
    assert (ours.system, ours.texts, ours.clusters) == ("ours", 40, 8)
    assert (ours.mean, ours.cluster_mean) == pytest.approx((scores.mean(), means.mean()))
    assert ours.disagreement == pytest.approx(z.std(axis=2).mean())
    half = stats.t.ppf(0.975, 7) * means.std(ddof=1) / np.sqrt(8)
    assert ours.t is not None
    assert (ours.t.low, ours.t.high) == pytest.approx((means.mean() - half, means.mean() + half))
    drawn = means[generator.integers(8, size=(20_000, 8))].mean(axis=1)
    assert ours.bootstrap is not None
    assert (ours.bootstrap.low, ours.bootstrap.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.03)


def test_systems_stand_in_the_order_of_their_means_and_unnamed_texts_are_one() -> None:
    failed = response(
        5, suspected=True, error=ItemError.RUNTIME_ERROR, system="theirs", assessed=unscored({"grm": Outcome.FAILED})
    )
    report = of(
        response(0, 1.0, 2.0),
        response(1, 0.0, 0.0, system="theirs"),
        response(2, 3.0, 3.0, system="ours"),
        response(3, 0.0, 1.0),
        response(4, system="silent", error=ItemError.POISONED),
        failed,
    )
    assert [(one.system, one.texts, one.mean) for one in report.systems] == [
        ("ours", 1, 3.0),
        (None, 2, (guarded((1.0, 2.0)) + guarded((0.0, 1.0))) / 2),
        ("theirs", 1, 0.0),
        ("silent", 0, None),
    ]
    theirs = report.systems[2]
    assert (theirs.scored.count, theirs.scored.n, theirs.bootstrap, theirs.disagreement) == (1, 2, None, 0)
    assert report.systems[3].disagreement is None
    assert report.items.errors == {ItemError.POISONED: 1, ItemError.RUNTIME_ERROR: 1}
    assert (report.committee.scored.count, report.committee.scored.n) == (4, 5)
    assert report.committee.score == pytest.approx(np.mean([guarded((1, 2)), 0, 3, guarded((0, 1))]))
    assert report.committee.members[1].unscored[Outcome.FAILED] == 1
    assert (report.items.injection_suspected.count, report.items.injection_suspected.n) == (1, 6)
    assert codes(report) == {"failures", "no_clusters", "few_clusters"}


def test_a_job_nobody_has_heard_yet_has_no_scores() -> None:
    report = build(scorings(status=JobStatus.QUEUED, started_at=None, ended_at=None), committee(), 3, [])
    assert (report.systems, report.committee.score, report.usage.seconds) == ((), None, None)
    assert codes(report) == {"incomplete"}


def test_systems_past_the_limit_are_left_out_and_it_says_so() -> None:
    report = of(*(response(i, 1.0, 1.0, system=f"system {i}", cluster="c") for i in range(MAX_SYSTEMS + 1)))
    assert len(report.systems) == MAX_SYSTEMS
    assert report.committee.scored.count == MAX_SYSTEMS + 1
    assert "systems_omitted" in codes(report)


def test_the_report_goes_onto_the_wire_and_comes_back() -> None:
    report = of(response(0, 1.0, 2.0, system="\ud800"))
    shown = json.loads(report.json_text())
    assert (shown["kind"], shown["job"]["committee"]) == ("scoring", "reappraisal")
    assert Report.model_validate(shown).root == report


def test_a_row_is_made_of_what_is_stored() -> None:
    stored = {
        "seq": 7,
        "status": "succeeded",
        "error_code": None,
        "calls": 3,
        "prompt_tokens": 30,
        "cached_tokens": 10,
        "completion_tokens": 0,
        "classified_tokens": 20,
        "facets": '{"label":null,"cluster":"c","systems":["ours"]}',
        "suspected": True,
        "assessment": {
            "committee": "reappraisal",
            "pool": [0],
            "outcomes": {"seed0": ["decided"], "seed1": ["decided"], "grm": ["tie"]},
            "texts": [{"text": 0, "z": {"seeds": 1.0, "grm": 0.0}, "mean": 0.5, "std": 0.5, "score": 0.25}],
        },
    }
    assert scoring_row(stored) == ScoringRow(
        seq=7,
        status=ItemStatus.SUCCEEDED,
        error=None,
        cluster="c",
        calls=3,
        prompt_tokens=30,
        cached_tokens=10,
        completion_tokens=0,
        classified_tokens=20,
        system="ours",
        assessed=Assessed(
            1,
            {"seed0": (DECIDED,), "seed1": (DECIDED,), "grm": (Outcome.TIE,)},
            (ScoredText(0, {"seeds": 1.0, "grm": 0.0}, 0.5, 0.25),),
        ),
        suspected=True,
    )
