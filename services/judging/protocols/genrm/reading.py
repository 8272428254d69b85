"""How the answer of a GenRM model is read: two scores and a ranking, or one score, as JSON or between markers.

Guarantee: total and linear, as objects.py is. The last whole answer counts, whether its numbers can be read or not:
what is cut or broken takes no answer's place, and what is quoted inside an object or a section of analysis is none.
Sources of the forms: NeMo Gym's `genrm_compare` (JSON of two responses); for the markers the environments of NeMo RL
that read Llama-3.3-Nemotron-Super-49B-GenRM, a model of arXiv 2505.11475: of a single response one score, no ranking.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from services.judging.margins import BOTH_BAD
from services.judging.protocols.genrm.objects import OBJECT_START, JsonObject, read_object
from services.judging.reading import Reading, Seen, answer_start
from services.vocabulary import FinishReason, Flag, Outcome, Winner

GRADES = range(1, 6)
# The differences of scores that a ranking goes with: 1, response 1 is much better, to 6, response 2 is much better.
_GAPS = {1: range(2, 5), 2: range(1, 3), 3: range(-1, 2), 4: range(-1, 2), 5: range(-2, 0), 6: range(-4, -1)}

_SCORES, _RANKING = "Individual Scores", "Ranking Score"
_SECTIONS = ("Analysis on Response 1", "Analysis on Response 2", _SCORES, _RANKING)
MARKERS = tuple(f"[The {edge} of {section}]" for section in _SECTIONS for edge in ("Begin", "End"))

_PLACE = re.compile(rf"\[The (Begin|End) of ({'|'.join(_SECTIONS)})\]|{OBJECT_START}")
_BOX = re.compile(r"\\boxed\{([^{}]*+)\}")
_NUMBER = re.compile(r"-?[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")

_UNFINISHED = frozenset({"broken_json", "no_ranking", "no_scores"})
_MISCOUNTED = {1: "not_one_score", 2: "not_two_scores"}


@dataclass(frozen=True, slots=True)
class _Section:
    """What stands between two markers; the span includes them."""

    name: str
    span: tuple[int, int]
    boxes: list[str]


@dataclass(frozen=True, slots=True)
class _Answer:
    """A place that looks like an answer. `fault` says why it is none; then the numbers mean nothing."""

    span: tuple[int, int]
    form: str
    scores: tuple[int, ...] = ()
    ranking: int | None = None
    fault: str | None = None

    def decided(self) -> tuple[Winner | int, str]:
        """The slot that it prefers, or the score of a single response, and by which rule."""
        if len(self.scores) == 1:
            return self.scores[0], "single_score"
        first, second = self.scores
        if self.ranking == BOTH_BAD:
            return Winner.TIE, "both_bad"
        if first != second:
            return Winner.A if first > second else Winner.B, "higher_score"
        if self.ranking is None:
            return Winner.TIE, "equal_scores"
        return Winner.A if self.ranking <= 3 else Winner.B, "ranking"

    @property
    def contradictory(self) -> bool:
        """True where the ranking does not go with the scores."""
        return self.ranking in _GAPS and self.scores[0] - self.scores[1] not in _GAPS[self.ranking]


def read_scores(completion: str, finish_reason: FinishReason, responses: int = 2) -> Reading:
    """Read the last answer, to one or two responses, of a judge that thinks.

    The reading's `rule` is what decided, or why nothing could be read.
    """
    start = answer_start(completion, thinks=True)
    thinking = frozenset({Flag.THINK_UNCLOSED}) if start is None else frozenset[Flag]()
    if finish_reason is FinishReason.ABORT:
        return Reading(Outcome.ABORTED, None, "aborted", thinking)
    unread = Outcome.TRUNCATED if finish_reason is FinishReason.LENGTH else Outcome.UNPARSEABLE
    if start is None:
        return Reading(unread, None, "thinking_unclosed", thinking)

    answers = list(_answers(completion, start, responses))
    if not answers:
        return Reading(unread, None, "no_scores")
    last = next((answer for answer in reversed(answers) if answer.fault not in _UNFINISHED), answers[-1])
    seen = tuple(
        Seen(completion[slice(*answer.span)], answer.span, answer.fault is None)
        for answer in answers
        if answer is not last or answer.fault
    )
    if last.fault:
        return Reading(unread, None, last.fault, seen=seen)
    decision, rule = last.decided()
    flags = {
        Flag.CONTRADICTORY: last.contradictory,
        Flag.CONFLICTING: any(answer.decided()[0] != decision for answer in answers if not answer.fault),
    }
    return Reading(
        Outcome.TIE if decision is Winner.TIE else Outcome.DECIDED,
        decision if isinstance(decision, Winner) else None,
        rule,
        frozenset(flag for flag, holds in flags.items() if holds),
        last.span,
        seen,
        scores=last.scores,
        ranking=last.ranking,
        form=last.form,
    )


def _answers(text: str, start: int, responses: int) -> Iterator[_Answer]:
    """Everything that looks like an answer, in order. A section of scores and the ranking that comes next are one."""
    scores: _Section | None = None
    for place in _places(text, start, responses):
        if scores is not None:
            ranking = place if isinstance(place, _Section) and place.name == _RANKING else None
            yield _marked(scores, ranking, responses)
            scores = None
            if ranking is not None:
                continue
        if isinstance(place, _Answer):
            yield place
        elif place.name == _SCORES:
            scores = place
        else:
            yield _Answer(place.span, "markers", fault="no_scores")
    if scores is not None:
        yield _marked(scores, None, responses)


def _places(text: str, start: int, responses: int) -> Iterator[_Section | _Answer]:
    """The closed sections of scores and rankings, and the objects outside of all sections that look like an answer.

    A section runs from the last opening marker before a closing one of its name.
    """
    opened: re.Match[str] | None = None
    position = start
    while place := _PLACE.search(text, position):
        position = place.end()
        match place[1]:
            case "Begin":
                opened = place
            case "End" if opened is not None and opened[2] == place[2]:
                if place[2] in (_SCORES, _RANKING):
                    boxes = _BOX.findall(text, opened.end(), place.start())
                    yield _Section(place[2], (opened.start(), place.end()), boxes)
                opened = None
            case None if opened is None:
                found = read_object(text, place.start())
                position = found.span[1]
                if (answer := _from_object(text, found, responses)) is not None:
                    yield answer


def _from_object(text: str, found: JsonObject, responses: int) -> _Answer | None:
    """The answer that an object is; None for one without scores of its own."""
    if found.members is None:
        mentioned = text.find('"score_1"', *found.span) >= 0
        return _Answer(found.span, "json", fault="broken_json") if mentioned else None
    members = dict(found.members)
    asked = [f"score_{number}" for number in range(1, responses + 1)]
    if not set(asked) <= members.keys():
        return None
    if len(members) < len(found.members):
        return _Answer(found.span, "json", fault="duplicate_key")
    if responses == 1 and "score_2" in members:
        return _Answer(found.span, "json", fault=_MISCOUNTED[1])
    ranking = members.get("ranking", "null")
    scores = [_unquoted(members[key]) for key in asked]
    return _answer(found.span, "json", scores, None if ranking == "null" else _unquoted(ranking))


def _marked(scores: _Section, ranking: _Section | None, responses: int) -> _Answer:
    """The answer that two sections are: the last box of each counts. Two scores are none without their ranking."""
    spelled = scores.boxes[-1].split(",") if scores.boxes else []
    if len(spelled) != responses:
        return _Answer(scores.span, "markers", fault=_MISCOUNTED[responses])
    if ranking is not None:
        span = scores.span[0], ranking.span[1]
        return _answer(span, "markers", spelled, ranking.boxes[-1] if ranking.boxes else "")
    if responses == 1:
        return _answer(scores.span, "markers", spelled, None)
    return _Answer(scores.span, "markers", fault="no_ranking")


def _answer(span: tuple[int, int], form: str, scores: list[str], ranking: str | None) -> _Answer:
    """The answer in these spellings; `ranking` None is missing."""
    grades = [_whole(score) for score in scores]
    ranked = None if ranking is None else _whole(ranking)
    if None in grades:
        fault = "score_not_whole"
    elif not set(grades) <= set(GRADES):
        fault = "score_out_of_range"
    elif ranking is not None and len(scores) == 1:
        fault = "ranking_of_one"
    elif ranking is not None and ranked is None:
        fault = "ranking_not_whole"
    elif ranked is not None and ranked not in (*_GAPS, BOTH_BAD):
        fault = "ranking_out_of_range"
    else:
        return _Answer(span, form, tuple(grade for grade in grades if grade is not None), ranked)
    return _Answer(span, form, fault=fault)


def _unquoted(value: str) -> str:
    """A member's value, a string's without its quotes."""
    return value[1:-1] if value.startswith('"') else value


def _whole(spelling: str) -> int | None:
    """The whole number that is spelled, as 4, 4.0 or 40e-1; None for anything else."""
    digits = spelling.strip()
    if not _NUMBER.fullmatch(digits):
        return None
    number = float(digits)
    return int(number) if number.is_integer() else None
