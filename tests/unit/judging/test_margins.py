"""Margins: the sign is the winner, and exchanging the slots exchanges the sign."""

import json
from itertools import product

import pytest

from services.judging.margins import MARGINS, blended, nvidia
from services.judging.reading import Reading
from services.judging.registry import protocol
from services.vocabulary import FinishReason, Outcome, Winner

GRADES = (1, 5)
RANKINGS = (1, 2, 3, 4, 5, 6, -1, None)
TRIPLES = list(product(range(1, 6), range(1, 6), RANKINGS))


def reading(first: int, second: int, ranking: int | None) -> Reading:
    """What genrm makes of such an answer."""
    answer = json.dumps({"score_1": first, "score_2": second, "ranking": ranking})
    found = protocol("genrm").read(f"</think>{answer}", FinishReason.STOP)
    assert (found.scores, found.ranking) == ((first, second), ranking)
    return found


def mirrored(ranking: int | None) -> int | None:
    return ranking if ranking in (-1, None) else 7 - ranking


@pytest.mark.parametrize(
    ("triple", "margin"),
    [
        *(((4, 3, 1), 1.5), ((3, 3, 1), 0.5), ((3, 3, 6), -0.5), ((2, 5, 6), -3.5), ((5, 1, 1), 4.5), ((4, 4, 3), 0.1)),
        *(((4, 2, None), 2.0), ((3, 3, None), 0.0), ((1, 1, -1), 0.0), ((5, 1, -1), 0.0)),
    ],
)
def test_blended(triple: tuple[int, int, int | None], margin: float) -> None:
    assert blended(reading(*triple)) == pytest.approx(margin, abs=1e-15)


@pytest.mark.parametrize(
    ("triple", "margin"),
    [
        *(((4, 3, 1), 1.0), ((3, 3, 1), 5.0), ((3, 3, 4), -1.0), ((5, 1, 1), 4.0), ((2, 5, 1), -3.0)),
        *(((3, 3, None), 0.0), ((4, 2, None), 2.0), ((1, 1, -1), 0.0), ((5, 1, -1), 0.0)),
    ],
)
def test_nvidia(triple: tuple[int, int, int | None], margin: float) -> None:
    assert nvidia(reading(*triple)) == margin


@pytest.mark.parametrize("name", MARGINS)
def test_the_sign_of_a_margin_is_the_winner(name: str) -> None:
    signs = {Winner.A: 1, Winner.TIE: 0, Winner.B: -1}
    for first, second, ranking in TRIPLES:
        found = reading(first, second, ranking)
        margin = MARGINS[name].of(found)
        assert found.winner is not None
        assert (margin > 0) - (margin < 0) == signs[found.winner]
        assert (margin == 0) == (ranking == -1 or (first == second and ranking is None))


@pytest.mark.parametrize("name", MARGINS)
def test_exchanging_the_slots_turns_a_margin_around(name: str) -> None:
    margin = MARGINS[name]
    for first, second, ranking in TRIPLES:
        given, turned = reading(first, second, ranking), reading(second, first, mirrored(ranking))
        assert margin.of(turned) == -margin.of(given)
        assert margin.share(turned, GRADES) == pytest.approx(1 - margin.share(given, GRADES), abs=1e-15)


@pytest.mark.parametrize(("name", "greatest"), [("blended", 4.5), ("nvidia", 5.0)])
def test_the_greatest_margin_is_reached_and_never_passed(name: str, greatest: float) -> None:
    margin = MARGINS[name]
    readings = [reading(*triple) for triple in TRIPLES]
    assert margin.greatest(GRADES) == greatest == max(abs(margin.of(found)) for found in readings)
    shares = [margin.share(found, GRADES) for found in readings]
    assert (min(shares), max(shares)) == (0.0, 1.0)
    assert margin.share(reading(3, 3, None), GRADES) == 0.5


def test_the_greatest_margin_follows_the_grades() -> None:
    assert MARGINS["blended"].greatest((1, 9)) == 8.5
    assert MARGINS["nvidia"].greatest((1, 9)) == 8
    assert MARGINS["nvidia"].greatest((1, 2)) == 5


def test_a_blended_margin_grows_with_every_sign_in_favour() -> None:
    for first, second, ranking in product(range(1, 5), range(1, 6), range(2, 7)):
        here = blended(reading(first, second, ranking))
        assert blended(reading(first + 1, second, ranking)) > here
        assert blended(reading(first, second, ranking - 1)) > here


def test_a_reading_without_two_scores_has_no_margin() -> None:
    for name in MARGINS:
        with pytest.raises(ValueError, match="values to unpack"):
            MARGINS[name].of(Reading(Outcome.UNPARSEABLE, None, "no_scores"))
