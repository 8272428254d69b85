"""How chosen texts fare against baselines: the right pairs, over the right items, with intervals over vignettes."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from services.contract.reports.reappraisal import ComparisonReport, ReappraisalReport
from services.judging.opinion import Opinion
from services.judging.standing import rank_grades
from services.reports.rates import MAX_SYSTEMS
from services.reports.reappraisal.build import build
from services.reports.reappraisal.item import ReappraisalRow
from services.vocabulary import Flag, ItemError, Outcome, Winner
from tests.unit.reports.reappraisal_rows import reappraisals, reappraised, text
from tests.unit.reports.rows import TIE, A, B, judge, opinion, ranking, silent, votes


def of(*rows: ReappraisalRow) -> ReappraisalReport:
    return build(reappraisals(compare=judge(), pool="fresh"), None, len(rows), rows)


def compared(*rows: ReappraisalRow) -> ComparisonReport:
    made = of(*rows).comparison
    assert made is not None
    return made


def against(seq: int, winner: Winner | None, system: str | None = None, **changes: object) -> ReappraisalRow:
    """A chosen text and one baseline."""
    return reappraised(seq, baselines=(system,), opinion=opinion(winner=winner), **changes)


def counts(made: ComparisonReport) -> dict[str | None, tuple[int, int, int]]:
    return {rate.system: (rate.wins, rate.ties, rate.losses) for rate in made.baselines}


def test_wins_are_the_chosen_texts_and_a_tie_is_half_a_win() -> None:
    made = compared(against(0, A, "gpt"), against(1, A, "gpt"), against(2, B, "r1"), against(3, TIE), against(4, A))
    assert (made.overall.pairs, made.overall.wins, made.overall.ties, made.overall.losses) == (5, 3, 1, 1)
    assert made.overall.rate == 0.7
    assert counts(made) == {"gpt": (2, 0, 0), None: (1, 1, 0), "r1": (0, 0, 1)}
    assert [(rate.system, rate.rate) for rate in made.baselines] == [("gpt", 1), (None, 0.75), ("r1", 0)]
    assert (made.ties.count, made.ties.n) == (1, 5)


def test_what_was_not_compared_is_in_no_rate() -> None:
    failure = silent(ItemError.TRUNCATED)
    made = compared(
        against(0, A, "gpt"),
        reappraised(1, baselines=("gpt",), opinion=failure),
        reappraised(2, baselines=("gpt",)),  # not in time
        reappraised(3, text(Outcome.EMPTY, 0), baselines=("gpt",), error=ItemError.GATED),  # nothing to compare
        against(4, None, "gpt"),  # an abstention
    )
    assert (made.compared.count, made.compared.n, made.late, made.errors) == (2, 4, 1, {ItemError.TRUNCATED: 1})
    assert (made.abstained.count, made.abstained.n) == (1, 2)
    assert (made.overall.pairs, made.overall.wins) == (1, 1)
    assert (made.judge.answered.count, made.judge.answered.n) == (2, 4)
    assert made.judge.answers.outcomes[Outcome.TRUNCATED] == 2


def test_an_item_whose_comparison_failed_has_succeeded_all_the_same() -> None:
    report = of(reappraised(0, baselines=("gpt",), opinion=silent(ItemError.TRUNCATED)))
    assert (report.items.succeeded.count, report.items.errors) == (1, {})


def star(*winners: Winner | None) -> Opinion:
    """Of a judge that compared the chosen text with so many baselines; None is an abstention."""
    shares = {(0, other): 0.5 for other in range(1, 1 + len(winners))}
    said = ranking(shares, [votes(A, A)] * len(winners), 1 + len(winners), first_slot=len(winners))
    pairs = [replace(pair, winner=winner) for pair, winner in zip(said.pairs, winners, strict=True)]
    return replace(said, pairs=tuple(pairs), standing=None if None in winners else said.standing)


def test_of_several_baselines_each_is_a_pair_of_its_own() -> None:
    rows = [
        reappraised(0, baselines=("gpt", "r1", "gpt"), opinion=star(A, B, TIE), cluster="v"),
        reappraised(1, baselines=("gpt", None), opinion=star(B, A), cluster="w"),
        against(2, A, "gpt", cluster="w"),
    ]
    made = compared(*rows)
    assert counts(made) == {"gpt": (2, 1, 1), "r1": (0, 0, 1), None: (1, 0, 0)}
    assert (made.overall.pairs, made.overall.rate, made.overall.clusters) == (6, 3.5 / 6, 2)
    assert made.judge.position.first_slot.n == 12  # two hard answers a pair


def test_an_abstention_on_one_baseline_leaves_the_others() -> None:
    made = compared(reappraised(0, baselines=("gpt", "r1"), opinion=star(None, A)))
    assert counts(made) == {"gpt": (0, 0, 0), "r1": (1, 0, 0)}
    assert (made.abstained.count, made.abstained.n, made.compared.count) == (1, 2, 1)


def test_a_judge_that_grades_texts_alone_compares_by_its_grades() -> None:
    grades = (3.0, 4.0, 3.0)
    said = opinion(
        winner=None,
        p_a=None,
        consistent=None,
        votes={},
        first_slot=0,
        grades=grades,
        standing=rank_grades(grades, 1, 5),
    )
    made = compared(reappraised(0, baselines=("gpt", "r1"), opinion=said))
    assert counts(made) == {"gpt": (0, 0, 1), "r1": (0, 1, 0)}
    assert [(grade.system, grade.mean) for grade in made.judge.grades] == [("gpt", 4.0), ("r1", 3.0), ("writer", 3.0)]
    even = replace(said, standing=rank_grades(grades, 1, 5, tie_margin=1 / 8))  # a point of four, to both sides
    assert counts(compared(reappraised(0, baselines=("gpt", "r1"), opinion=even))) == {
        "gpt": (0, 1, 0),
        "r1": (0, 1, 0),
    }


def test_intervals_are_over_vignettes() -> None:
    generator = np.random.default_rng(8)
    values = np.array(
        [generator.choice([0.0, 0.5, 1.0], p=(0.5 - c / 20, 0.1, 0.4 + c / 20), size=40) for c in range(6)]
    )
    winner = {0.0: B, 0.5: TIE, 1.0: A}
    rows = [
        against(seq, winner[value], "gpt", cluster=f"vignette {seq // 40}") for seq, value in enumerate(values.ravel())
    ]
    report = of(*rows)
    assert report.comparison is not None
    rate = report.comparison.overall
    means = values.mean(axis=1)
    assert (rate.clusters, rate.rate, rate.cluster_mean) == (
        6,
        pytest.approx(values.mean()),
        pytest.approx(means.mean()),
    )
    half = stats.t.ppf(0.975, 5) * means.std(ddof=1) / np.sqrt(6)
    assert rate.t is not None
    assert (rate.t.low, rate.t.high) == pytest.approx((means.mean() - half, means.mean() + half))
    drawn = means[generator.integers(6, size=(20_000, 6))].mean(axis=1)
    assert rate.bootstrap is not None
    assert (rate.bootstrap.low, rate.bootstrap.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.01)
    p, z = values.mean(), stats.norm.ppf(0.975)
    centre = (p + z**2 / 480) / (1 + z**2 / 240)
    width = z * np.sqrt(p * (1 - p) / 240 + z**2 / (4 * 240**2)) / (1 + z**2 / 240)
    assert rate.wilson is not None
    assert (rate.wilson.low, rate.wilson.high) == pytest.approx((centre - width, centre + width))
    (note,) = (note for note in report.notes if note.code == "few_clusters")
    assert note.message.startswith("As few as 6 clusters (vignettes): below 30")


def test_enough_vignettes_are_not_warned_of_and_none_named_is() -> None:
    enough = of(*(against(i, A, cluster=f"v{i}") for i in range(30)))
    none = of(*(against(i, A) for i in range(30)))
    assert {note.code for note in enough.notes} & {"few_clusters", "no_clusters"} == set()
    (note,) = (note for note in none.notes if note.code in {"few_clusters", "no_clusters"})
    assert (note.code, "share a vignette" in note.message) == ("no_clusters", True)


def test_the_judges_own_part_stands_beside_the_win_rate() -> None:
    suspected = opinion(winner=A, flags=frozenset({Flag.INJECTION_SUSPECTED}))
    mixed = opinion(winner=A, flags=frozenset({Flag.CONFLICTING}), votes=votes(A, A), first_slot=1)
    report = of(
        *(reappraised(i, baselines=("gpt",), opinion=suspected) for i in range(20)),
        reappraised(20, baselines=("gpt",), opinion=mixed),
    )
    made = report.comparison
    assert made is not None
    assert (made.injection_suspected.count, made.injection_suspected.n) == (20, 21)
    assert (made.conflicting.count, made.conflicting.n) == (1, 21)
    assert (made.judge.name, made.judge.agrees, made.judge.labels) == ("smollm2", None, None)
    assert (made.judge.position.first_slot.count, made.judge.position.first_slot.n) == (41, 42)
    assert (made.judge.position.consistent.count, made.judge.position.consistent.n) == (1, 21)
    assert (made.judge.usage.calls, made.judge.usage.prompt_tokens) == (42, 2_100)
    assert {note.code: note.judge for note in report.notes}["position_bias"] == "smollm2"


def test_systems_past_the_limit_count_in_the_overall_rate_alone() -> None:
    rows = [against(i, A, f"system {i}", cluster=f"v{i}") for i in range(MAX_SYSTEMS + 5)]
    report = of(*rows)
    assert report.comparison is not None
    assert len(report.comparison.baselines) == MAX_SYSTEMS
    assert report.comparison.overall.pairs == MAX_SYSTEMS + 5
    assert "systems_omitted" in {note.code for note in report.notes}
