"""How GenRM answers are read: both forms alike, nothing invented, and no completion can slow it down."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.judging.protocols.genrm import objects, reading
from services.judging.protocols.genrm.objects import read_object
from services.judging.protocols.genrm.reading import MARKERS, read_scores
from services.judging.reading import Reading
from services.vocabulary import FinishReason, Flag, Outcome, Winner

FINISHES = st.sampled_from(FinishReason)
GRADES = st.integers(1, 5)
RANKINGS = st.sampled_from([1, 2, 3, 4, 5, 6, -1])
TRIPLES = st.tuples(GRADES, GRADES, RANKINGS)
ANSWERS = ['{"score_1": 4, "score_2": 2, "ranking": 2}', '{"score_1": 3, "score_2": 3}']
PIECES = st.sampled_from(
    [
        *MARKERS,
        *ANSWERS,
        *(
            "\\boxed{4, 2}",
            "\\boxed{2}",
            "\\boxed{",
            '{"score_1": ',
            '"score_2"',
            ": ",
            ", ",
            "{",
            "}",
            "[",
            "]",
            '"',
            "\\",
        ),
        *("4", "-1", "4.5", "true", "null", "\n", " ", "x", "<think>", "</think>"),
    ]
)
COMPLETIONS = st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=25).map("".join)


def as_json(first: int, second: int, ranking: int | None) -> str:
    members = {"response_1_analysis": 'It says "{}".', "score_1": first, "score_2": second, "ranking": ranking}
    return json.dumps({key: value for key, value in members.items() if value is not None})


def as_markers(first: int, second: int, ranking: int) -> str:
    return (
        f"[The Begin of Individual Scores]\n\\boxed{{{first}, {second}}}\n[The End of Individual Scores]\n"
        f"[The Begin of Ranking Score]\n\\boxed{{{ranking}}}\n[The End of Ranking Score]"
    )


FORMS = {"json": as_json, "markers": as_markers}


def read(answer: str, finish: FinishReason = FinishReason.STOP) -> Reading:
    return read_scores(f"Hm.</think>{answer}", finish)


def expected_winner(first: int, second: int, ranking: int | None) -> Winner:
    if ranking == -1:
        return Winner.TIE
    if first == second:
        return Winner.TIE if ranking is None else Winner.A if ranking < 3.5 else Winner.B
    return Winner.A if first > second else Winner.B


@given(text=COMPLETIONS, finish=FINISHES)
def test_every_text_has_a_reading_and_only_answers_have_numbers(text: str, finish: FinishReason) -> None:
    found = read_scores(text, finish)
    if not found.answered:
        nothing = (found.winner, found.span, found.scores, found.ranking, found.form, found.seed_verdict)
        assert nothing == (None, None, (), None, None, None)
        assert not found.flags - {Flag.THINK_UNCLOSED}
        assert (found.outcome is Outcome.ABORTED) == (finish is FinishReason.ABORT)
        assert (found.outcome is Outcome.TRUNCATED) == (finish is FinishReason.LENGTH)
        return
    first, second = found.scores
    assert {first, second} <= {1, 2, 3, 4, 5}
    assert found.ranking in {1, 2, 3, 4, 5, 6, -1, None}
    assert (found.outcome is Outcome.TIE) == (found.winner is Winner.TIE)
    assert found.form is not None
    assert found.winner is expected_winner(first, second, found.ranking)
    assert found.span is not None
    assert re.match(
        r"\{.*}$|\[The Begin of Individual.*\[The End of Ranking Score]$", text[slice(*found.span)], re.DOTALL
    )


@given(text=COMPLETIONS, finish=FINISHES)
def test_a_reading_says_where_it_looked(text: str, finish: FinishReason) -> None:
    found = read_scores(text, finish)
    assert all(text[slice(*seen.span)] == seen.text for seen in found.seen)
    spans = sorted([seen.span for seen in found.seen] + ([found.span] if found.span else []))
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))
    valid = [seen for seen in found.seen if seen.valid]
    assert (Flag.CONFLICTING in found.flags) <= bool(valid)


@given(thinking=COMPLETIONS, answer=COMPLETIONS, finish=FINISHES)
def test_what_was_thought_moves_spans_and_nothing_else(thinking: str, answer: str, finish: FinishReason) -> None:
    alone, after = read(answer, finish), read_scores(f"{thinking}</think>{answer}", finish)
    shift = len(thinking) - len("Hm.")

    def moved(span: tuple[int, int]) -> tuple[int, int]:
        return span[0] + shift, span[1] + shift

    seen = tuple(replace(one, span=moved(one.span)) for one in alone.seen)
    assert after == replace(alone, seen=seen, span=moved(alone.span) if alone.span else None)


@pytest.mark.parametrize("form", FORMS)
@given(triple=TRIPLES)
def test_both_forms_say_the_same(form: str, triple: tuple[int, int, int]) -> None:
    found = read(FORMS[form](*triple))
    assert (found.form, found.scores, found.ranking) == (form, triple[:2], triple[2])
    assert found.winner is expected_winner(*triple)
    assert replace(found, form=None, span=None) == replace(read(as_json(*triple)), form=None, span=None)


@pytest.mark.parametrize("form", FORMS)
@given(triple=TRIPLES)
def test_exchanging_the_responses_exchanges_the_reading(form: str, triple: tuple[int, int, int]) -> None:
    first, second, ranking = triple
    found = read(FORMS[form](first, second, ranking))
    mirrored = read(FORMS[form](second, first, ranking if ranking == -1 else 7 - ranking))
    assert found.winner is not None
    assert mirrored.winner is found.winner.mirrored
    assert mirrored.scores == found.scores[::-1]
    assert (mirrored.outcome, mirrored.flags, mirrored.rule) == (found.outcome, found.flags, found.rule)


# The differences of scores that go with a ranking, as the judging rules list them.
CONSISTENT = {1: {2, 3, 4}, 2: {1, 2}, 3: {-1, 0, 1}, 4: {-1, 0, 1}, 5: {-1, -2}, 6: {-2, -3, -4}}


@pytest.mark.parametrize("ranking", [1, 2, 3, 4, 5, 6, -1, None])
def test_a_ranking_that_does_not_go_with_the_scores_is_flagged(ranking: int | None) -> None:
    for first in range(1, 6):
        for second in range(1, 6):
            fits = ranking not in CONSISTENT or first - second in CONSISTENT[ranking]
            assert read(as_json(first, second, ranking)).flags == (set() if fits else {Flag.CONTRADICTORY})


@given(answers=st.lists(st.tuples(st.sampled_from(sorted(FORMS)), TRIPLES), min_size=1, max_size=4))
def test_the_last_of_several_answers_counts(answers: list[tuple[str, tuple[int, int, int]]]) -> None:
    found = read("\nor\n".join(FORMS[form](*triple) for form, triple in answers))
    form, (first, second, ranking) = answers[-1]
    assert (found.form, found.scores, found.ranking) == (form, (first, second), ranking)
    assert len(found.seen) == len(answers) - 1
    assert (Flag.CONFLICTING in found.flags) == (len({expected_winner(*triple) for _, triple in answers}) > 1)


@pytest.mark.parametrize("finish", [FinishReason.STOP, FinishReason.LENGTH])
@pytest.mark.parametrize("form", FORMS)
def test_an_answer_that_is_cut_anywhere_is_none(form: str, finish: FinishReason) -> None:
    answer = FORMS[form](4, 2, 2)
    for end in range(len(answer)):
        cut = read(answer[:end], finish)
        assert cut.outcome is (Outcome.TRUNCATED if finish is FinishReason.LENGTH else Outcome.UNPARSEABLE), answer[
            :end
        ]
        resumed = read(f"{ANSWERS[1]}\n{answer[:end]}", finish)
        assert (resumed.scores, resumed.rule) == ((3, 3), "equal_scores")


@pytest.mark.parametrize("quoted", [*ANSWERS, as_markers(5, 1, 1)])
def test_what_an_answer_quotes_is_no_answer(quoted: str) -> None:
    escaped = json.dumps({"response_1_analysis": quoted, "score_1": 2, "score_2": 4, "ranking": 5})
    section = f"{MARKERS[0]}\n{quoted}\n{MARKERS[1]}\n{as_markers(2, 4, 5)}"
    raw = f'{{"response_1_analysis": "It says "{quoted}"", "score_1": 2, "score_2": 4, "ranking": 5}}'
    assert (read(escaped).scores, read(escaped).seen) == ((2, 4), ())
    assert read(raw).outcome is Outcome.UNPARSEABLE
    if quoted in ANSWERS:
        assert (read(section).scores, read(section).seen) == ((2, 4), ())


@pytest.mark.parametrize("spelling", ["4", "4.0", "4.00", "40e-1", "4E0", '"4"', '"4.0"', '" 4\t"'])
def test_a_whole_number_may_be_spelled_in_many_ways(spelling: str) -> None:
    found = read(f'{{"score_1": {spelling}, "score_2": 2, "ranking": {spelling}}}')
    assert (found.scores, found.ranking) == ((4, 2), 4)
    assert [type(number) for number in (*found.scores, found.ranking)] == [int] * 3


@pytest.mark.parametrize(
    "member",
    [
        *("+4", "04", "4.", ".4", "0x4", "four", "None", "4 5", "4/5", "'4'", "undefined"),  # no JSON
        *('"+4"', '"four"', '"4/5"', '"4 5"', '"\\u0034"', '""', "{}", "[4]", "true", "null", "NaN", "-Infinity", "6"),
    ],
)
def test_anything_else_is_no_score(member: str) -> None:
    assert read(f'{{"score_1": {member}, "score_2": 2, "ranking": 3}}').outcome is Outcome.UNPARSEABLE


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=10,
)


@given(
    members=st.dictionaries(st.text(max_size=3), JSON, max_size=4),
    indent=st.sampled_from([None, 1]),
    after=st.text(max_size=5),
)
def test_every_json_object_is_found_whole(members: dict[str, Any], indent: int | None, after: str) -> None:
    text = json.dumps(members, indent=indent)
    found = read_object(text + after, 0)
    assert found.span == (0, len(text))
    assert found.members is not None
    assert [json.loads(f'"{key}"') for key, _ in found.members] == list(members)
    for (_, spelled), value in zip(found.members, members.values(), strict=True):
        assert spelled == ("{" if isinstance(value, dict) else "[" if isinstance(value, list) else json.dumps(value))


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1,}',
        '{"a": [1, [2,],],}',
        '{"a\n": "\\(x\\)\\u1\r"}',
        "{ }",
        '{"a": NaN, "b": -Infinity}',
        '{"a": "\\""}',
    ],
)
def test_what_models_write_is_tolerated(text: str) -> None:
    assert read_object(text, 0).members is not None
    assert read_object(text, 0).span == (0, len(text))


@pytest.mark.parametrize(
    ("text", "end"),
    [
        *(('{"a": 1,,} {}', 10), ('{"a" 1} {}', 7), ('{"a": {"b" 1}} {}', 14), ('{"a": [1}} {}', 9), ("{,} {}", 3)),
        *(
            ('{"a": "b" "}" } {}', 12),
            ('{"a": "b} {', 11),
            ('{"a": {"b": 1', 13),
            ('{"a": {"b" {}', 13),
            ('{"a": 1 // }', 12),
        ),
    ],
)
def test_a_broken_object_reaches_to_the_brace_that_balances_it(text: str, end: int) -> None:
    broken = read_object(text, 0)
    assert (broken.members, broken.span) == (None, (0, end))


class Metered:
    """A pattern that counts the characters that it was led over."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.read = 0

    def match(self, text: str, start: int) -> re.Match[str] | None:
        found = self._pattern.match(text, start)
        # A string without an end is looked for down to the end of the text; everything else fails where it stands.
        end = found.end() if found else len(text) if text.startswith('"', start) else start
        self.read += end - start
        return found

    def search(self, text: str, start: int) -> re.Match[str] | None:
        found = self._pattern.search(text, start)
        self.read += (found.end() if found else len(text)) - start
        return found

    def finditer(self, text: str, start: int) -> Iterator[re.Match[str]]:
        end = len(text)
        try:
            for found in self._pattern.finditer(text, start):
                end = found.end()
                yield found
            end = len(text)
        finally:
            self.read += end - start


PATTERNS = [(reading, "_PLACE"), (objects, "_TOKEN"), (objects, "_BRACE")]
SCORES_BEGIN, SCORES_END, RANKING_BEGIN, RANKING_END = MARKERS[4:]


@pytest.mark.parametrize(
    "text",
    [
        *('{"a":' * 100_000, '{"a":' + "[" * 100_000, '{"a":' + "[" * 100_000 + "]" * 100_000 + "}", '{"' * 100_000),
        *(
            '{"a":"' + "\\" * 1_000_000,
            '{"a":"' + "\\" * 1_000_001 + '"}',
            '{"a": "' + "}{" * 100_000,
            '{"a" x}' * 20_000,
        ),
        *(
            "{" * 300_000,
            "{}" * 50_000,
            "{ " * 100_000,
            "{" + " " * 300_000,
            ('{"a"' + " " * 100) * 1_000,
            '{"a"}' * 20_000,
        ),
        *(SCORES_BEGIN * 10_000, (SCORES_BEGIN + SCORES_END) * 5_000, SCORES_BEGIN + "\\boxed{" * 50_000 + SCORES_END),
        *(SCORES_BEGIN + "\\boxed{" + "4," * 100_000 + "}" + SCORES_END, (RANKING_BEGIN + RANKING_END) * 5_000),
        *(
            '{"score_1": ' + "4" * 300_000 + ', "score_2": 4.' + "0" * 300_000 + "}",
            '{"score_1": "' + "4" * 300_000 + '"}',
        ),
        *(
            '{"score_1": 4 ' * 20_000,
            '{"score_1":"' * 20_000,
            "{" + '"a":1,' * 50_000 + "}",
            '{"a":[' + "1," * 50_000 + "]}",
        ),
    ],
    ids=lambda text: text[:12],
)
def test_no_text_is_gone_over_again_and_again(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    meters = {name: Metered(getattr(module, name)) for module, name in PATTERNS}
    for module, name in PATTERNS:
        monkeypatch.setattr(module, name, meters[name])
    assert not read(text).answered
    assert 0 < sum(meter.read for meter in meters.values()) <= 3 * len(text) + 100
