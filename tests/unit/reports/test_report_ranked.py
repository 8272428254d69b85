"""Items with more than two candidates: their pairs make the win rates, their best one meets the label."""

import json
from dataclasses import replace

import pytest

from services.judging.opinion import Opinion
from services.judging.standing import Standing
from services.reports.item import item_row
from services.reports.judgement.build import build
from services.vocabulary import ItemError, ItemStatus, Winner
from tests.unit.reports.rows import (
    TIE,
    A,
    failed,
    job,
    judge,
    opinion,
    ranked,
    ranking,
    row,
    silent,
    standing,
    votes,
)

FIRST = standing(3, {(0, 1): 1.0, (0, 2): 1.0, (1, 2): 0.5})  # the first beats both, which are even
LAST = standing(3, {(0, 1): 0.5, (1, 2): 0.25})  # the pair (0, 2) has no answer
LEVEL = standing(3, {(0, 1): 0.5, (0, 2): 0.5, (1, 2): 0.5})


def test_systems_are_counted_by_the_answered_pairs_that_compare_them() -> None:
    rows = [
        ranked(0, FIRST, systems=("x", "y", "z")),  # x beats y and z, y and z are even
        ranked(1, LAST, systems=("x", "y", "x")),  # x and y are even, x beats y; x does not meet x
        row(2, A, systems=("z", "x")),
    ]
    report = build(job(), 3, rows)
    counted = {rate.system: (rate.pairs, rate.wins, rate.ties, rate.losses, rate.rate) for rate in report.systems}
    assert counted == {
        "x": (5, 3, 1, 1, 0.7),
        "y": (4, 0, 2, 2, 0.25),
        "z": (3, 1, 1, 1, 0.5),
    }
    assert [rate.system for rate in report.systems] == ["x", "z", "y"]


def test_pairs_of_one_system_or_of_none_say_nothing() -> None:
    rows = [ranked(0, FIRST, systems=("x", None, "x"))]
    (x,) = build(job(), 1, rows).systems
    assert (x.pairs, x.wins, x.ties) == (2, 1, 1)


def test_a_share_that_is_one_half_but_for_rounding_is_a_tie() -> None:
    third = 0.1 + 0.2 + 0.2 + 1e-12
    assert third != 0.5
    rows = [ranked(0, standing(3, {(0, 1): third, (1, 2): 0.5 + 1e-6}), systems=("x", "y", "z"))]
    counted = {rate.system: (rate.wins, rate.ties, rate.losses) for rate in build(job(), 1, rows).systems}
    assert counted == {"x": (0, 1, 0), "y": (1, 1, 0), "z": (0, 0, 1)}


def near(*winners: Winner | None) -> Opinion:
    """Of a judge that prefers 0 to 1, 0 to 2 and 1 to 2 by a hair; `winners` says what it makes of each pair."""
    said = ranking({(0, 1): 0.55, (0, 2): 0.55, (1, 2): 0.55}, [votes(A, A)] * 3, 3)
    pairs = zip(said.pairs, winners, strict=True)
    return replace(said, pairs=tuple(replace(pair, winner=winner) for pair, winner in pairs))


def test_a_single_judge_says_who_wins_a_pair_and_abstains_nowhere() -> None:
    said = near(TIE, A, None)
    assert said.standing is not None
    report = build(job(), 1, [ranked(0, said.standing, said, systems=("x", "y", "z"))])
    counted = {rate.system: (rate.wins, rate.ties, rate.losses) for rate in report.systems}
    assert counted == {"x": (1, 1, 0), "y": (0, 1, 0), "z": (0, 0, 1)}


def test_of_a_panel_the_matrix_says_who_wins_a_pair() -> None:
    said = replace(near(TIE, A, None), judge="one")
    assert said.standing is not None
    panel = job(judge("one"), judge("other"))
    report = build(panel, 1, [ranked(0, said.standing, said, systems=("x", "y", "z"))])
    counted = {rate.system: (rate.wins, rate.ties, rate.losses) for rate in report.systems}
    assert counted == {"x": (2, 0, 0), "y": (1, 0, 1), "z": (0, 0, 2)}


def test_the_pairs_of_an_item_are_of_one_cluster() -> None:
    alone = [ranked(seq, FIRST, systems=("x", "y", "z")) for seq in range(4)]
    together = [ranked(seq, FIRST, systems=("x", "y", "z"), cluster="c") for seq in range(4)]
    own, shared = (build(job(), 4, rows).systems[0] for rows in (alone, together))
    assert (own.pairs, own.clusters, shared.pairs, shared.clusters) == (8, 4, 8, 1)
    assert shared.bootstrap is None


def test_sides_are_those_of_items_with_two_candidates() -> None:
    report = build(job(), 2, [ranked(0, FIRST), row(1, A)])
    assert report.sides["A"].pairs == 1
    assert report.items.succeeded.count == 2


def test_the_best_candidate_is_compared_with_the_label() -> None:
    rows = [
        ranked(0, FIRST, label=0),
        ranked(1, FIRST, label=2),
        ranked(2, LEVEL, label=TIE),
        ranked(3, LEVEL, label=0),
        ranked(4, FIRST),
        failed(5, ItemError.TRUNCATED, label=1, systems=(None, None, None)),
        row(6, A, label=A),
    ]
    report = build(job(), 7, rows)
    labels = report.labels
    assert labels is not None
    assert labels.labelled == 6
    assert labels.best is not None
    assert (labels.best.raw.count, labels.best.raw.n) == (2, 4)
    assert (labels.best.base.count, labels.best.base.n) == (2, 4)  # always the first: 0, 2, tie and 0
    assert (labels.verdict.raw.count, labels.verdict.raw.n) == (1, 1)
    own = report.judges[0].labels
    assert own is not None
    assert own.best == labels.best
    assert own.orders is not None
    assert own.orders.both.raw.n == 1


def test_a_label_that_no_verdict_meets_is_agreement_over_nothing() -> None:
    labels = build(job(), 1, [failed(0, ItemError.TRUNCATED, label=1, systems=(None, None, None))]).labels
    assert labels is not None
    assert labels.best is not None
    assert (labels.best.raw.n, labels.best.raw.rate) == (0, None)
    assert (labels.best.base.n, labels.best.base.rate) == (0, None)


def test_ties_and_abstentions_are_counted_over_all_items() -> None:
    rows = [ranked(0, LEVEL), ranked(1, FIRST), row(2, TIE), row(3, None), failed(4, ItemError.TRUNCATED)]
    items = build(job(), 5, rows).items
    assert (items.ties.count, items.ties.n) == (2, 4)
    assert (items.abstained.count, items.abstained.n) == (1, 4)


@pytest.mark.parametrize(("reached", "winner"), [(FIRST, "0"), (LEVEL, "tie")])
def test_a_ranked_row_is_made_of_what_is_stored(reached: Standing, winner: str) -> None:
    said = opinion(winner=None, standing=reached, votes={}, grades=(5.0, 3.0, None))
    stored = {
        "seq": 7,
        "status": "succeeded",
        "winner": winner,
        "standing": json.loads(json.dumps(reached.as_json())),
        "disagreement": 0.5,
        "error_code": None,
        "calls": 6,
        "prompt_tokens": 1,
        "cached_tokens": 1,
        "completion_tokens": 1,
        "facets": '{"label":2,"cluster":null,"systems":["x",null,"y"]}',
        "opinions": [
            json.dumps(said.as_json()),
            json.dumps(silent(ItemError.TRUNCATED).as_json()),
        ],
    }
    made = item_row(stored)
    assert (made.winner, made.label, made.is_pair) == (0 if winner == "0" else Winner.TIE, 2, False)
    assert (made.standing, made.disagreement, made.status) == (reached, 0.5, ItemStatus.SUCCEEDED)
    assert made.opinions == (said, silent(ItemError.TRUNCATED))
