"""How a GenRM grades a single response: the score is read as strictly as two are, and no answer to two counts."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.foundation.errors import Misconfigured
from services.judging.hearing import HearingOptions
from services.judging.protocol import Message
from services.judging.protocols.genrm.reading import MARKERS, read_scores
from services.judging.reading import Reading
from services.judging.registry import option_names, protocol
from services.judging.runtime import Completion
from services.judging.scoring import ToScore, open_scoring
from services.vocabulary import FinishReason, Flag, Outcome

FINISHES = st.sampled_from(FinishReason)
GRADES = st.integers(1, 5)
RANKINGS = st.sampled_from([1, 2, 3, 4, 5, 6, -1])
SCORES_BEGIN, SCORES_END, RANKING_BEGIN, RANKING_END = MARKERS[4:]
PIECES = st.sampled_from(
    [
        *(*MARKERS, '{"score_1": 4}', '{"score_1": 3, "score_2": 3}', "\\boxed{4}", "\\boxed{4, 2}", "\\boxed{"),
        *('{"score_1": ', '"score_2"', '"ranking"', ": ", ", ", "{", "}", "[", "]", '"', "\\"),
        *("4", "-1", "4.5", "true", "null", "\n", " ", "x", "<think>", "</think>"),
    ]
)
COMPLETIONS = st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=25).map("".join)


def as_json(score: int) -> str:
    return json.dumps({"response_1_analysis": 'It says "{}".', "score_1": score})


def as_markers(content: object) -> str:
    return f"{SCORES_BEGIN}\n\\boxed{{{content}}}\n{SCORES_END}"


def ranked(ranking: int) -> str:
    return f"{RANKING_BEGIN}\n\\boxed{{{ranking}}}\n{RANKING_END}"


FORMS = {"json": as_json, "markers": as_markers}


def read(answer: str, finish: FinishReason = FinishReason.STOP) -> Reading:
    return read_scores(f"Hm.</think>{answer}", finish, 1)


@given(text=COMPLETIONS, finish=FINISHES)
def test_every_text_has_a_reading_and_only_answers_have_a_score(text: str, finish: FinishReason) -> None:
    found = read_scores(text, finish, 1)
    assert (found.winner, found.ranking, found.seed_verdict) == (None, None, None)
    if not found.answered:
        assert (found.span, found.scores, found.form) == (None, (), None)
        assert not found.flags - {Flag.THINK_UNCLOSED}
        assert (found.outcome is Outcome.ABORTED) == (finish is FinishReason.ABORT)
        assert (found.outcome is Outcome.TRUNCATED) == (finish is FinishReason.LENGTH)
        return
    assert (found.outcome, found.rule) == (Outcome.DECIDED, "single_score")
    assert found.flags <= {Flag.CONFLICTING}
    assert found.scores in {(1,), (2,), (3,), (4,), (5,)}
    assert found.span is not None
    place = text[slice(*found.span)]
    ends = {"json": ("{", "}"), "markers": (SCORES_BEGIN, SCORES_END)}[found.form or ""]
    assert (place.startswith(ends[0]), place.endswith(ends[1])) == (True, True)


@given(text=COMPLETIONS, finish=FINISHES)
def test_a_reading_says_where_it_looked(text: str, finish: FinishReason) -> None:
    found = read_scores(text, finish, 1)
    assert all(text[slice(*seen.span)] == seen.text for seen in found.seen)
    spans = sorted([seen.span for seen in found.seen] + ([found.span] if found.span else []))
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))
    assert (Flag.CONFLICTING in found.flags) <= any(seen.valid for seen in found.seen)


@given(thinking=COMPLETIONS, answer=COMPLETIONS, finish=FINISHES)
def test_what_was_thought_moves_spans_and_nothing_else(thinking: str, answer: str, finish: FinishReason) -> None:
    alone, after = read(answer, finish), read_scores(f"{thinking}</think>{answer}", finish, 1)
    shift = len(thinking) - len("Hm.")

    def moved(span: tuple[int, int]) -> tuple[int, int]:
        return span[0] + shift, span[1] + shift

    seen = tuple(replace(one, span=moved(one.span)) for one in alone.seen)
    assert after == replace(alone, seen=seen, span=moved(alone.span) if alone.span else None)


@given(answers=st.lists(st.tuples(st.sampled_from(sorted(FORMS)), GRADES), min_size=1, max_size=4))
def test_the_last_of_several_scores_counts_and_disagreement_is_flagged(answers: list[tuple[str, int]]) -> None:
    found = read("\nor\n".join(FORMS[form](score) for form, score in answers))
    assert (found.form, found.scores) == (answers[-1][0], (answers[-1][1],))
    assert [seen.valid for seen in found.seen] == [True] * (len(answers) - 1)
    assert found.flags == ({Flag.CONFLICTING} if len({score for _, score in answers}) > 1 else set())


@given(first=GRADES, second=GRADES, ranking=RANKINGS)
def test_no_answer_to_two_responses_is_one_to_a_single_one(first: int, second: int, ranking: int) -> None:
    both = {"score_1": first, "score_2": second, "ranking": ranking}
    single = {"score_1": first, "ranking": ranking}
    came = {
        json.dumps(both): "not_one_score",
        json.dumps({**both, "ranking": None}): "not_one_score",
        json.dumps({**both, "score_2": None}): "not_one_score",
        json.dumps(single): "ranking_of_one",
        as_markers(f"{first}, {second}"): "not_one_score",
        as_markers(f"{first}, {second}") + ranked(ranking): "not_one_score",
        as_markers(first) + ranked(ranking): "ranking_of_one",
    }
    for answer, rule in came.items():
        assert (read(answer).outcome, read(answer).rule) == (Outcome.UNPARSEABLE, rule), answer
        assert read(f"{as_json(3)}\n{answer}").outcome is Outcome.UNPARSEABLE, "a whole answer takes an earlier's place"
        assert read(f"{answer}\n{as_json(3)}").scores == (3,)


@given(form=st.sampled_from(sorted(FORMS)), score=GRADES)
def test_no_score_of_a_single_response_is_an_answer_to_two(form: str, score: int) -> None:
    assert read_scores(f"</think>{FORMS[form](score)}", FinishReason.STOP, 2).outcome is Outcome.UNPARSEABLE


@pytest.mark.parametrize("finish", [FinishReason.STOP, FinishReason.LENGTH])
@pytest.mark.parametrize("form", FORMS)
def test_an_answer_that_is_cut_anywhere_is_none(form: str, finish: FinishReason) -> None:
    answer = FORMS[form](4)
    for end in range(len(answer)):
        cut = read(answer[:end], finish)
        assert cut.outcome is (Outcome.TRUNCATED if finish is FinishReason.LENGTH else Outcome.UNPARSEABLE), end
        assert read(f"{as_json(3)}\n{answer[:end]}", finish).scores == (3,)


@pytest.mark.parametrize("quoted", ['{"score_1": 5}', as_markers(5)])
def test_what_an_answer_quotes_is_no_answer(quoted: str) -> None:
    escaped = read(json.dumps({"response_1_analysis": quoted, "score_1": 2}))
    assert (escaped.scores, escaped.seen) == ((2,), ())
    assert read(f'{{"response_1_analysis": "It says "{quoted}"", "score_1": 2}}').outcome is Outcome.UNPARSEABLE
    analysed = read(f"{MARKERS[0]}\nIt says {as_json(5)}\n{MARKERS[1]}\n{as_markers(2)}")
    assert (analysed.scores, analysed.seen) == ((2,), ())


@pytest.mark.parametrize("spelling", ["4", "4.0", "40e-1", '"4"', '"4.0"', '" 4\t"'])
def test_a_whole_number_may_be_spelled_in_many_ways(spelling: str) -> None:
    for answer in (f'{{"score_1": {spelling}}}', as_markers(spelling.strip('"'))):
        (score,) = read(answer).scores
        assert (score, type(score)) == (4, int)


@pytest.mark.parametrize(
    "spelling",
    ["+4", "four", "4/5", "4 5", "4.5", "0", "6", "-4", "", "true", "null", "NaN", "Infinity", "1e400", "４"],
)
def test_anything_else_is_no_score(spelling: str) -> None:
    answers = (f'{{"score_1": {spelling}}}', f'{{"score_1": "{spelling}"}}', as_markers(spelling))
    assert {read(answer).outcome for answer in answers} == {Outcome.UNPARSEABLE}


def test_a_committee_gets_the_mean_score_of_each_text() -> None:
    said = {"7 * 13.": iter([as_json(5), as_json(4)]), "Yes.": iter([as_markers(2), "No idea."])}
    judge, texts = protocol("genrm", {"responses": 1}), ToScore((Message("user", "Is 91 a prime?"),), tuple(said))
    scoring = open_scoring("genrm", judge, texts, HearingOptions(samples=2, early_stop="never"))
    while not scoring.ended:
        for key in scoring.open_calls():
            asked = judge.messages(scoring.showing(key))
            assert (len(asked), asked[1].role) == (2, "response_1")
            completion = Completion(f"Hm.</think>{next(said[asked[1].content])}", FinishReason.STOP, 10, 0, 5)
            scoring.record(key, scoring.read(key, completion))
    assert scoring.scores().values == (4.5, 2.0)
    assert scoring.scores().outcomes == (Outcome.DECIDED, Outcome.DECIDED)


@pytest.mark.parametrize("options", [{"responses": count} for count in (0, 3, True, 1.0, "1", None)])
def test_one_or_two_responses_are_shown(options: dict[str, Any]) -> None:
    assert option_names("genrm") == {"principle", "responses"}
    with pytest.raises(Misconfigured, match=r"genrm cannot be made with these options: (.|\n)*responses"):
        protocol("genrm", options)
