"""What a report says of a committee is what numpy makes of its members' z."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from services.contract.reports.reappraisal import ChoosingCommittee
from services.reports.committee import Assessed
from services.reports.reappraisal.build import build
from services.reports.reappraisal.item import ReappraisalRow
from services.vocabulary import ItemError, Outcome
from tests.unit.reports.reappraisal_rows import (
    committee,
    guarded,
    reappraisals,
    reappraised,
    scored,
    text,
    unscored,
)


def of(*rows: ReappraisalRow) -> ChoosingCommittee:
    report = build(reappraisals(committee="reappraisal", candidates=4), committee(), len(rows), rows)
    assert report.committee is not None
    return report.committee


def test_means_stds_and_correlations_are_over_all_scored_texts() -> None:
    z = np.random.default_rng(3).normal(size=(30, 4, 2)) * [1.0, 3.0] + [0.5, -2.0]
    z[..., 1] += z[..., 0]
    made = of(*(reappraised(i, *[text()] * 4, assessed=scored(*z[i])) for i in range(30)))
    flat = z.reshape(-1, 2)
    seeds, grm = made.members
    assert (seeds.name, seeds.models, seeds.weight) == ("seeds", ("seed0", "seed1"), 1.0)
    assert (seeds.mean, grm.mean) == pytest.approx(tuple(flat.mean(axis=0)))
    assert (seeds.std, grm.std) == pytest.approx(tuple(flat.std(axis=0)))
    assert made.disagreement == pytest.approx(flat.std(axis=1).mean())
    assert made.score == pytest.approx((flat.mean(axis=1) - 0.5 * flat.std(axis=1)).mean())
    (pair,) = made.correlations
    assert pair.members == ("seeds", "grm")
    assert (pair.r, pair.texts) == (pytest.approx(np.corrcoef(flat.T)[0, 1]), 120)
    assert (made.scored.count, made.scored.n, seeds.scored.count, seeds.scored.n) == (120, 120, 120, 120)


def test_the_chosen_are_told_apart_from_all_that_were_scored() -> None:
    items = [[(0.0, 0.0), (1.0, 1.0), (2.0, 4.0)], [(3.0, 1.0), (-1.0, -1.0)], [(0.5, 0.5)]]
    chosen = [2, 0, 0]
    made = of(
        *(
            reappraised(i, *[text()] * len(z), assessed=scored(*z), selected=best)
            for i, (z, best) in enumerate(zip(items, chosen, strict=True))
        )
    )
    scores = [guarded(items[i][best]) for i, best in enumerate(chosen)]
    assert (made.chosen, made.chosen_score) == (3, pytest.approx(np.mean(scores)))
    assert made.score == pytest.approx(np.mean([guarded(one) for z in items for one in z]))
    assert made.chosen_score is not None
    assert made.chosen_score > made.score


def test_a_favourite_counts_where_there_was_a_choice() -> None:
    made = of(
        reappraised(0, text(), text(), assessed=scored((1.0, 0.0), (0.0, 5.0)), selected=1),  # grm's alone
        reappraised(1, text(), text(), assessed=scored((1.0, 2.0), (0.0, 2.0)), selected=0),  # of both: grm's is shared
        reappraised(2, text(), assessed=scored((1.0, 2.0)), selected=0),  # no choice
        reappraised(3, text(), text(), assessed=scored((1.0, 1.0), (0.5, 2.0)), selected=None, error=ItemError.GATED),
    )
    seeds, grm = made.members
    assert (seeds.favourite.count, seeds.favourite.n) == (1, 2)
    assert (grm.favourite.count, grm.favourite.n) == (2, 2)


def test_the_place_of_the_chosen_text_is_among_all_that_were_written() -> None:
    written = (text(Outcome.TOO_LONG, 3), text(attempt=1), text(Outcome.EMPTY, 0), text(attempt=1))
    told = scored((0.0, 0.0), (1.0, 2.0), places=(1, 3))
    made = of(reappraised(0, *written, assessed=told, selected=3))
    assert made.chosen_score == pytest.approx(guarded((1.0, 2.0)))


def test_a_text_that_one_member_did_not_score_is_in_no_mean() -> None:
    both = {"seed1": Outcome.FAILED, "seed0": Outcome.UNPARSEABLE}
    made = of(
        reappraised(0, assessed=scored((1.0, 3.0))),
        reappraised(1, assessed=unscored({"seed1": Outcome.TRUNCATED}), selected=None),
        reappraised(2, assessed=unscored(both), selected=None),
        reappraised(3, assessed=unscored({"grm": Outcome.CONTEXT_OVERFLOW}), selected=None),
        reappraised(4, text(Outcome.EMPTY, 0), assessed=Assessed(0, {}, ()), error=ItemError.GATED),
    )
    seeds, grm = made.members
    assert (made.scored.count, made.scored.n) == (1, 4)
    assert (seeds.scored.count, seeds.scored.n, grm.scored.count, grm.scored.n) == (2, 4, 3, 4)
    # of an ensemble the first model that failed tells
    assert {outcome: count for outcome, count in seeds.unscored.items() if count} == {
        Outcome.TRUNCATED: 1,
        Outcome.UNPARSEABLE: 1,
    }
    assert {outcome: count for outcome, count in grm.unscored.items() if count} == {Outcome.CONTEXT_OVERFLOW: 1}
    assert set(grm.unscored) == {
        Outcome.UNPARSEABLE,
        Outcome.TRUNCATED,
        Outcome.CONTEXT_OVERFLOW,
        Outcome.ABORTED,
        Outcome.FAILED,
        Outcome.POISONED,
    }
    assert (seeds.mean, grm.mean, made.disagreement, made.chosen) == (1.0, 3.0, 1.0, 1)


def test_without_a_scored_text_nothing_is_made_up() -> None:
    made = of(reappraised(0, assessed=unscored({"grm": Outcome.FAILED}), selected=None))
    assert (made.score, made.disagreement, made.chosen, made.chosen_score) == (None, None, 0, None)
    assert [(member.mean, member.std, member.favourite.rate) for member in made.members] == [(None, None, None)] * 2
    assert made.correlations[0].r is None


def test_members_that_say_the_same_of_every_text_correlate_with_none() -> None:
    made = of(*(reappraised(i, assessed=scored((float(i), 0.1))) for i in range(5)))
    assert made.correlations[0].r is None
    assert made.members[1].std == 0


def test_there_is_a_correlation_for_every_pair_of_members() -> None:
    names = ["a", "b", "c"]
    three = committee(members={name: [name] for name in names}, weights=dict.fromkeys(names, 2.0))
    z = np.random.default_rng(4).normal(size=(20, 3))
    rows = []
    for i, row in enumerate(z):
        (one,) = scored((0.0, 0.0)).scored
        told = Assessed(
            1, dict.fromkeys(names, (Outcome.DECIDED,)), (replace(one, z=dict(zip(names, row, strict=True))),)
        )
        rows.append(reappraised(i, assessed=told))
    made = build(reappraisals(committee="reappraisal"), three, 20, rows).committee
    assert made is not None
    r = np.corrcoef(z.T)
    expected = {(names[i], names[j]): r[i, j] for i, j in combinations(range(3), 2)}
    assert {pair.members: pair.r for pair in made.correlations} == pytest.approx(expected)
