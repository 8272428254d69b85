"""Exchanging the candidates of every item exchanges the sides of the report, and nothing else."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.contract.reports.judgement import JudgementReport
from services.judging.opinion import Opinion
from services.judging.standing import Pairwise, Standing
from services.reports.item import ItemRow
from services.reports.judgement.build import build
from services.vocabulary import ItemError, ItemStatus, Order, Outcome, Winner
from tests.unit.reports.rows import Votes, job, judge, opinion, ranking, row, silent, standing

FAILURES = [
    Outcome.UNPARSEABLE,
    Outcome.TRUNCATED,
    Outcome.CONTEXT_OVERFLOW,
    Outcome.ABORTED,
    Outcome.FAILED,
    Outcome.POISONED,
]
counts = st.dictionaries(st.sampled_from(Winner), st.integers(1, 2))
answers: st.SearchStrategy[Votes] = st.fixed_dictionaries({Order.AB: counts, Order.BA: counts})
grades = st.sampled_from((None, 1.0, 2.5, 4.0))
systems = st.sampled_from(("x", "y", None))
matrices = st.fixed_dictionaries({(0, 1): st.sampled_from((0.0, 0.5, 1.0)), (1, 2): st.sampled_from((0.0, 0.25, 0.5))})


@st.composite
def opinions(draw: st.DrawFn, name: str, shares: dict[tuple[int, int], float] | None) -> tuple[Opinion, ...]:
    """One judge's opinion on an item, of three candidates where `shares` are given; none, or a silent one too."""
    votes = [draw(answers) for _ in shares or (None,)]
    first_slot = sum(one[Order.AB].get(Winner.A, 0) + one[Order.BA].get(Winner.B, 0) for one in votes)
    rest: dict[str, Any] = {"judge": name, "first_slot": first_slot}
    if shares is None:
        said = opinion(
            winner=draw(st.sampled_from(Winner)), votes=votes[0], grades=(draw(grades), draw(grades)), **rest
        )
    else:
        said = ranking(shares, votes, 3, grades=(draw(grades), draw(grades), draw(grades)), **rest)
    silence = silent(draw(st.sampled_from(ItemError)), draw(st.sampled_from(FAILURES)), judge=name)
    return draw(st.sampled_from(((said,), (silence,), ())))


@st.composite
def items(draw: st.DrawFn) -> ItemRow:
    """An item of two or three candidates, succeeded or failed."""
    shares = draw(st.none() | matrices)
    reached = standing(3, shares) if shares else None
    said = (*draw(opinions("one", shares)), *draw(opinions("other", shares)))
    error = draw(st.none() | st.sampled_from(ItemError))
    winner = draw(st.none() | st.sampled_from(Winner)) if reached is None else reached.winner
    return row(
        draw(st.integers(0, 99)),
        opinions=said,
        winner=None if error else winner,
        standing=None if error else reached,
        status=ItemStatus.FAILED if error else ItemStatus.SUCCEEDED,
        error=error,
        label=draw(st.none() | (st.integers(0, 2) if shares else st.sampled_from(Winner))),
        cluster=draw(st.sampled_from(("c", "d", None))),
        systems=tuple(draw(systems) for _ in range(3 if shares else 2)),
        disagreement=draw(st.sampled_from((None, 0.0, 0.5))),
    )


def turned(winner: Winner | int | None, candidates: int) -> Winner | int | None:
    if winner is None or isinstance(winner, Winner):
        return winner.mirrored if winner else None
    return candidates - 1 - winner


def mirrored_votes(votes: Votes) -> Votes:
    """The same answers: what was shown as given is shown swapped."""
    other = {Order.AB: Order.BA, Order.BA: Order.AB}
    return {other[order]: {side.mirrored: count for side, count in sides.items()} for order, sides in votes.items()}


def mirrored_standing(reached: Standing | None) -> Standing | None:
    if reached is None:
        return None
    winner = turned(reached.winner, len(reached.ranks))
    assert winner is not None
    return replace(reached, winner=winner, matrix=tuple(line[::-1] for line in reached.matrix[::-1]))


def mirrored_pair(pair: Pairwise) -> Pairwise:
    winner = pair.winner.mirrored if pair.winner else None
    return replace(pair, first=2 - pair.second, second=2 - pair.first, winner=winner, votes=mirrored_votes(pair.votes))


def mirrored_opinion(said: Opinion) -> Opinion:
    return replace(
        said,
        winner=said.winner.mirrored if said.winner else None,
        votes=mirrored_votes(said.votes),
        standing=mirrored_standing(said.standing),
        pairs=tuple(map(mirrored_pair, said.pairs)),
        grades=said.grades[::-1] if said.grades else None,
    )


def mirrored(one: ItemRow) -> ItemRow:
    """The same item with its candidates in the opposite order."""
    return replace(
        one,
        winner=turned(one.winner, len(one.systems)),
        standing=mirrored_standing(one.standing),
        label=turned(one.label, len(one.systems)),
        systems=one.systems[::-1],
        opinions=tuple(map(mirrored_opinion, one.opinions)),
    )


def shown(value: Any) -> Any:
    """A report's figures, but for the last digits."""
    if isinstance(value, dict):
        return {key: shown(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shown(one) for one in value]
    return round(value, 9) if isinstance(value, float) else value


def of(rows: list[ItemRow]) -> JudgementReport:
    return build(job(judge("one"), judge("other")), len(rows), rows)


@given(st.lists(items(), max_size=8))
@settings(deadline=None, max_examples=60)
def test_a_mirrored_job_has_a_mirrored_report(rows: list[ItemRow]) -> None:
    expected = of(rows).model_dump(mode="json")
    expected["sides"] = {"A": expected["sides"]["B"], "B": expected["sides"]["A"]}
    for part in expected["judges"]:
        if part["labels"] and (orders := part["labels"]["orders"]):
            part["labels"]["orders"] = {**orders, "given": orders["swapped"], "swapped": orders["given"]}
    assert shown(of(list(map(mirrored, rows))).model_dump(mode="json")) == shown(expected)


@given(st.lists(items(), max_size=8))
@settings(deadline=None, max_examples=60)
def test_no_failure_adds_to_a_tie_or_a_rate(rows: list[ItemRow]) -> None:
    succeeded = [one for one in rows if one.status is ItemStatus.SUCCEEDED]
    whole, rest = of(rows), of(succeeded)
    assert whole.sides == rest.sides
    assert [rate for rate in whole.systems if rate.pairs] == [rate for rate in rest.systems if rate.pairs]
    assert whole.items.ties == rest.items.ties
    assert whole.items.ties.count == sum(one.winner is Winner.TIE for one in rows)
    for part in whole.judges:
        heard = [said for one in rows for said in one.opinions if said.judge == part.name]
        assert part.answers.outcomes == {
            outcome: sum(said.outcomes.get(outcome, 0) for said in heard)
            for outcome in (Outcome.DECIDED, Outcome.TIE, *FAILURES)
        }
        assert sum(part.answers.outcomes.values()) == part.answers.valid.n
