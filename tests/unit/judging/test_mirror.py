"""Mirrored readings make the mirrored opinion, for every family and option; exchanged candidates, the exchanged one."""

import json
import math
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.judging.hearing import Comparison, Hearing, HearingOptions, ways_to_decide
from services.judging.opinion import Opinion
from services.judging.proceeding import CallKey
from services.judging.protocol import Family, Message
from services.judging.registry import protocol
from services.judging.runtime import Completion
from services.vocabulary import Decide, FinishReason, Mode, OnConflict, Order, Orders, Winner

CONTEXT = (Message("user", "Which is better?"),)
FAMILIES: dict[str, Family] = {
    "sdrm": protocol("sdrm"),
    "prompted": protocol("prompted"),
    "with ties": protocol("prompted", {"labels": ["First", "Second", "tie"]}),
    "rubric": protocol("prompted", {"grades": 5}),
    "genrm": protocol("genrm"),
}


class Judge:
    """Answers as its seed and what it is shown say; `mirrored`, as if the two slots' contents were exchanged."""

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._family = FAMILIES[name]
        self._seed = seed

    def completion(self, key: CallKey, told: str, *, mirrored: bool) -> Completion:
        dice = Random(int.from_bytes(blake2b(f"{self._seed} {told} {key.sample}".encode()).digest()[:8], "big"))
        kind = dice.random()
        if key.forced:
            return self._forced(dice, mirrored=mirrored)
        if kind < 0.1:
            return Completion("I cannot tell.", FinishReason.STOP, 5, 2, 3)
        if kind < 0.2:
            return Completion("Let me see", FinishReason.LENGTH, 5, 2, 3)
        text = self._genrm(dice, mirrored=mirrored) if self._name == "genrm" else self._tagged(dice, mirrored=mirrored)
        return Completion(text, FinishReason.STOP, 5, 2, 3)

    def _tagged(self, dice: Random, *, mirrored: bool) -> str:
        form = self._family.verdict
        assert form is not None
        names = list(form.labels.names)
        at = dice.randrange(len(names))
        if mirrored and self._family.slots == 2 and at < 2:
            at = 1 - at
        return f"<{form.tag}>{names[at]}</{form.tag}>"

    def _forced(self, dice: Random, *, mirrored: bool) -> Completion:
        form = self._family.verdict
        assert form is not None
        shares = [dice.random() + 1e-3 for _ in form.labels.names]
        if mirrored and self._family.slots == 2:
            shares[:2] = shares[1::-1]
        logprobs = tuple((name, math.log(s / sum(shares))) for name, s in zip(form.labels.names, shares, strict=True))
        return Completion("", FinishReason.LENGTH, 5, 2, 1, logprobs)

    def _genrm(self, dice: Random, *, mirrored: bool) -> str:
        first, second = dice.randint(1, 5), dice.randint(1, 5)
        ranking: int | None = dice.choice([None, -1, 1, 2, 3, 4, 5, 6])
        if mirrored:
            first, second = second, first
            ranking = ranking if ranking in (None, -1) else 7 - ranking
        scores: dict[str, Any] = {"score_1": first, "score_2": second}
        return "Hm.\n</think>\n" + json.dumps(scores | ({} if ranking is None else {"ranking": ranking}))


def hear(
    name: str,
    options: HearingOptions,
    candidates: tuple[str, ...],
    completion: Callable[[Hearing, CallKey], Completion],
) -> Opinion:
    hearing = Hearing("judge", "item", Comparison(CONTEXT, candidates), FAMILIES[name], options)
    while not hearing.ended:
        for key in hearing.open_calls():
            hearing.record(key, hearing.read(key, completion(hearing, key)))
    return hearing.opinion()


@st.composite
def hearings(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from(sorted(FAMILIES)))
    family = FAMILIES[name]
    mode = draw(st.sampled_from([Mode.REASON] if family.verdict is None else list(Mode)))
    return name, {
        "mode": mode,
        "samples": 1 if mode is Mode.DIRECT else draw(st.integers(1, 5)),
        "decide": draw(st.sampled_from(ways_to_decide(family))),
        "on_conflict": draw(st.sampled_from(OnConflict)),
        "tie_margin": draw(st.sampled_from([0.0, 0.1])),
        "early_stop": draw(st.sampled_from(["never", "certain", 0.8])),
        "margin": draw(st.sampled_from(["blended", "nvidia"])),
        "forced_verdict": draw(st.booleans()),
    }


@settings(max_examples=400)
@given(hearing=hearings(), orders=st.sampled_from(Orders), seed=st.integers(0, 10**6))
def test_mirrored_readings_make_the_mirrored_opinion(hearing, orders: Orders, seed: int) -> None:
    name, options = hearing
    judge, pairwise = Judge(name, seed), FAMILIES[name].slots == 2

    def answers(*, mirrored: bool) -> Callable[[Hearing, CallKey], Completion]:
        def completion(_: Hearing, key: CallKey) -> Completion:
            # what a pointwise judge says of the one candidate, its mirror says of the other
            told = f"{key.order}" if pairwise else str(1 - key.match if mirrored else key.match)
            return judge.completion(key, told, mirrored=mirrored)

        return completion

    asked = HearingOptions(orders=orders, **options)
    seen = hear(name, asked, ("x", "y"), answers(mirrored=False))
    mirrored = hear(name, asked, ("x", "y"), answers(mirrored=True))
    if not pairwise and options["early_stop"] != "never":
        same_winner(seen, mirrored, options)  # the candidates are asked about in turn: not the same samples are spared
        return
    assert mirrored.winner is (seen.winner.mirrored if seen.winner else None)
    assert mirrored.p_a == (None if seen.p_a is None else pytest.approx(1 - seen.p_a, abs=1e-9))
    assert mirrored.margin == (None if seen.margin is None else pytest.approx(-seen.margin, abs=1e-9))
    assert mirrored.ranking == (None if seen.ranking is None else pytest.approx(7 - seen.ranking))
    assert mirrored.grades == (None if seen.grades is None else pytest.approx(seen.grades[::-1]))
    assert (mirrored.error, mirrored.consistent, mirrored.valid, mirrored.calls, mirrored.stopped) == (
        seen.error,
        seen.consistent,
        seen.valid,
        seen.calls,
        seen.stopped,
    )
    assert {order: (sides[Winner.B], sides[Winner.A]) for order, sides in mirrored.votes.items()} == {
        order: (sides[Winner.A], sides[Winner.B]) for order, sides in seen.votes.items()
    }


@settings(max_examples=400)
@given(hearing=hearings(), seed=st.integers(0, 10**6))
def test_exchanging_the_candidates_of_both_orders_exchanges_the_answer(hearing, seed: int) -> None:
    name, options = hearing
    judge = Judge(name, seed)

    def completion(hearing: Hearing, key: CallKey) -> Completion:
        return judge.completion(key, repr(hearing.showing(key).slots), mirrored=False)

    asked = HearingOptions(orders=Orders.BOTH, **options)
    seen, exchanged = hear(name, asked, ("x", "y"), completion), hear(name, asked, ("y", "x"), completion)
    same_winner(seen, exchanged, options)
    if options["early_stop"] == "never":
        assert exchanged.p_a == (None if seen.p_a is None else pytest.approx(1 - seen.p_a, abs=1e-9))
        assert exchanged.grades == (None if seen.grades is None else pytest.approx(seen.grades[::-1]))
        assert {order: exchanged.votes[Order.BA if order is Order.AB else Order.AB] for order in seen.votes} == {
            order: {side.mirrored: count for side, count in sides.items()} for order, sides in seen.votes.items()
        }


@settings(max_examples=200)
@given(hearing=hearings(), seed=st.integers(0, 10**6), numbers=st.permutations([0, 1, 2]))
def test_renumbering_many_candidates_renumbers_the_standing(hearing, seed: int, numbers: list[int]) -> None:
    name, options = hearing
    judge, texts = Judge(name, seed), ("x", "y", "z")

    def completion(hearing: Hearing, key: CallKey) -> Completion:
        return judge.completion(key, repr(hearing.showing(key).slots), mirrored=False)

    asked = HearingOptions(orders=Orders.BOTH, **options)
    seen = hear(name, asked, texts, completion)
    renumbered = hear(name, asked, tuple(texts[number] for number in numbers), completion)
    assert (renumbered.standing is None, renumbered.error is None) == (seen.standing is None, seen.error is None)
    if seen.standing is None or renumbered.standing is None:
        return
    assert renumbered.standing.ranks == tuple(seen.standing.ranks[number] for number in numbers)
    assert renumbered.standing.scores == pytest.approx(tuple(seen.standing.scores[number] for number in numbers))
    if seen.grades is not None and renumbered.grades is not None:
        assert renumbered.grades == tuple(
            grade if grade is None else pytest.approx(grade) for grade in (seen.grades[number] for number in numbers)
        )


def same_winner(seen: Opinion, other: Opinion, options: dict[str, Any]) -> None:
    """Both stop when certain of one winner; a test that stops at a chance may stop at another one."""
    if isinstance(options["early_stop"], float):
        return
    assert other.winner is (seen.winner.mirrored if seen.winner else None)
    assert (other.error, other.consistent is None) == (seen.error, seen.consistent is None)


def test_every_way_to_decide_is_tried() -> None:
    assert {decide for family in FAMILIES.values() for decide in ways_to_decide(family)} == set(Decide)
