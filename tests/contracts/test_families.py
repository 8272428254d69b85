"""What every model family keeps to, shipped or installed, whether it judges, writes or scores. `-k NAME` runs one.

A family is tried as it is made without options, and with each set of options that its golden cases name.
"""

import json
import math
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.judging.protocol import Family, Message, Showing
from services.judging.reading import Reading, VerdictForm, unfinished
from services.judging.registry import golden_cases, names, protocol
from services.judging.runtime import Sampling
from services.vocabulary import FinishReason, Flag, Outcome, Task, Winner

# For a text of so many characters what takes linear time needs a tenth of these seconds, quadratic time many of them.
LONG, CPU_S = 500_000, 5.0
# What a family of each task may read, and what its golden cases show at the least.
_UNREAD = {Outcome.UNPARSEABLE, Outcome.TRUNCATED}
SHOWN = {
    Task.JUDGE: {Outcome.DECIDED, *_UNREAD},
    Task.WRITE: {Outcome.ACCEPTED, Outcome.EMPTY, Outcome.TOO_LONG, *_UNREAD},
    Task.SCORE: {Outcome.DECIDED, Outcome.UNPARSEABLE},
}
READ = {task: {*outcomes, Outcome.ABORTED} for task, outcomes in SHOWN.items()}
READ[Task.JUDGE].add(Outcome.TIE)
MANY = settings(max_examples=50, deadline=None)


def golden(name: str) -> list[dict[str, Any]]:
    """The golden cases of a family; none where it has no file of them."""
    path = golden_cases(name)
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    return [json.loads(line) for line in lines if line.strip()]


@dataclass(frozen=True)
class Form:
    """A family as one set of options makes it."""

    name: str
    options: Mapping[str, object]
    cases: Sequence[dict[str, Any]]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{option}={json.dumps(value)}' for option, value in self.options.items())})"

    @property
    def judge(self) -> Family:
        """The family, made."""
        return protocol(self.name, self.options)

    @property
    def completions(self) -> list[str]:
        """What the family's golden cases read."""
        return [case["read"] for case in self.cases if "read" in case]

    @property
    def lines(self) -> list[str]:
        """Every line that the family's golden cases ask with: its own markers are among them."""
        asked = (turn["content"] for case in self.cases for turn in case.get("messages", ()))
        return sorted({line.strip() for content in asked for line in content.split("\n")} - {""})


def forms(name: str) -> list[Form]:
    """A family in every form."""
    cases = golden(name)
    options = {json.dumps(case.get("options", {})) for case in cases} | {"{}"}
    return [Form(name, json.loads(made_with), cases) for made_with in sorted(options)]


FORMS = [form for name in names() for form in forms(name)]
WITH_A_VERDICT = [form for form in FORMS if form.judge.verdict is not None]
WRITING = [form for form in FORMS if form.judge.task is Task.WRITE]
every_form = pytest.mark.parametrize("form", FORMS, ids=str)
every_form_that_writes = pytest.mark.parametrize("form", WRITING, ids=str)
every_form_with_a_verdict = pytest.mark.parametrize("form", WITH_A_VERDICT, ids=str)
every_golden_case = pytest.mark.parametrize(
    ("name", "case"),
    [pytest.param(name, case, id=f"{name}-{i}") for name in names() for i, case in enumerate(golden(name), start=1)],
)


@every_golden_case
def test_it_asks_and_reads_as_its_golden_cases_say(name: str, case: dict[str, Any]) -> None:
    judge = protocol(name, case.get("options"))
    if "ask" in case:
        asked = case["ask"]
        context = tuple(Message(turn["role"], turn["content"]) for turn in asked["context"])
        shown = Showing(context, tuple(asked["slots"]), asked.get("principle"))
        assert [{"role": turn.role, "content": turn.content} for turn in judge.messages(shown)] == case["messages"]
        assert judge.injection_suspected(shown) is case["injection_suspected"]
    else:
        reading = judge.read(case["read"], FinishReason(case["finish_reason"])).as_json()
        assert {field: json.loads(json.dumps(reading[field])) for field in case["reading"]} == case["reading"]


@pytest.mark.parametrize("name", names())
def test_its_golden_cases_show_what_matters(name: str) -> None:
    cases = golden(name)
    assert {case["injection_suspected"] for case in cases if "ask" in case} == {True, False}
    read = {case["reading"]["outcome"] for case in cases if "read" in case}
    assert read >= SHOWN[protocol(name).task]


@every_form
def test_it_says_what_it_is(form: Form) -> None:
    judge = form.judge
    assert judge.name == form.name
    assert judge.version
    assert isinstance(judge.version, str)
    assert isinstance(judge.sampling, Sampling)
    assert (judge.thinks in (True, False)) and (judge.takes_principle in (True, False))
    assert judge.slots in {Task.JUDGE: (1, 2), Task.WRITE: (0,), Task.SCORE: (1,)}[judge.task]
    if judge.task is not Task.JUDGE:
        assert (judge.grades, judge.verdict, judge.takes_principle) == (None, None, False)
    elif judge.grades is None:
        assert judge.slots == 2, "a judge grades a single candidate"
    else:
        least, most = judge.grades
        assert least < most


@every_form_with_a_verdict
def test_its_verdicts_labels_can_be_told_apart(form: Form) -> None:
    judge = form.judge
    assert judge.verdict is not None
    labels = judge.verdict.labels
    answers = [labels.match(name) for name in labels.names]
    if judge.slots == 2:
        assert answers in ([Winner.A, Winner.B], [Winner.A, Winner.B, Winner.TIE])
    else:
        assert judge.grades is not None
        least, most = judge.grades
        assert answers == list(range(least, most + 1))
    for one, other in permutations(labels.names, 2):
        assert not one.startswith(other)


# Reading


def pieces(form: Form) -> st.SearchStrategy[str]:
    """What completions are made of: the family's own words, whole golden completions and cuts of them, anything."""
    words = ["<think>", "</think>", "\n", " ", "**", ".", '"', "{", "}", "[", "]", ":", ",", "0", "3", "9", "4.5", "x"]
    if form.judge.verdict is not None:
        tag = form.judge.verdict.tag
        words += [f"<{tag}>", f"</{tag}>", f"<{tag.upper()} >", *form.judge.verdict.labels.names]
    whole = st.sampled_from(["", *form.completions])
    ends = st.integers(0, max(map(len, form.completions), default=0))
    cuts = st.builds(lambda text, begin, end: text[begin:end], whole, ends, ends)
    return st.one_of(st.sampled_from(words), whole, cuts, st.text(max_size=3))


def completions(form: Form) -> st.SearchStrategy[str]:
    """Anything that a model may write."""
    return st.lists(pieces(form), max_size=12).map("".join)


FINISHES = st.sampled_from(FinishReason)


@every_form
@MANY
@given(data=st.data(), finish=FINISHES)
def test_every_completion_has_a_reading_and_only_answers_have_values(
    form: Form, data: st.DataObject, finish: FinishReason
) -> None:
    judge, text = form.judge, data.draw(completions(form))
    reading = judge.read(text, finish)
    assert reading.outcome in READ[judge.task]
    assert (reading.outcome is Outcome.ABORTED) == (finish is FinishReason.ABORT)
    assert reading.outcome is not Outcome.TRUNCATED or finish is FinishReason.LENGTH
    assert reading.flags.isdisjoint({Flag.FORCED, Flag.INJECTION_SUSPECTED})
    for begin, end in filter(None, (reading.span, *(seen.span for seen in reading.seen))):
        assert 0 <= begin <= end <= len(text)
    assert [seen.text for seen in reading.seen] == [text[slice(*seen.span)] for seen in reading.seen]
    if reading.answered:
        assert reading.span is not None, "an answer says where it was read"
    assert (reading.winner is not None) == (reading.answered and judge.slots == 2)
    assert (reading.winner is Winner.TIE) == (reading.outcome is Outcome.TIE)
    assert_scores_are_the_familys_own(judge, reading)
    assert (reading.sentences is not None) == (judge.task is Task.WRITE)
    json.dumps(reading.as_json())


def assert_scores_are_the_familys_own(judge: Family, reading: Reading) -> None:
    scores = judge.slots if judge.grades is not None or judge.task is Task.SCORE else 0
    assert len(reading.scores) == (scores if reading.answered else 0)
    assert all(map(math.isfinite, reading.scores))
    if judge.grades is not None:
        least, most = judge.grades
        assert all(least <= score <= most for score in reading.scores)
    if not reading.answered or judge.grades is None:
        assert reading.ranking is None
    assert reading.ranking is None or reading.ranking in (-1, 1, 2, 3, 4, 5, 6)
    if judge.slots == 1 and reading.answered:
        assert reading.outcome is Outcome.DECIDED


@every_form_that_writes
@MANY
@given(data=st.data(), finish=FINISHES)
def test_a_text_that_was_written_is_a_stripped_part_of_the_completion(
    form: Form, data: st.DataObject, finish: FinishReason
) -> None:
    text = data.draw(completions(form))
    reading = form.judge.read(text, finish)
    if reading.span is not None:
        written = text[slice(*reading.span)]
        assert written == written.strip() != ""
        assert "</think>" not in text[reading.span[0] :]


@every_form
@MANY
@given(data=st.data(), finish=FINISHES)
def test_nothing_before_the_end_of_thinking_is_read(form: Form, data: st.DataObject, finish: FinishReason) -> None:
    thought, said = data.draw(completions(form)), "</think>" + data.draw(completions(form))
    alone, after = form.judge.read(said, finish), form.judge.read(thought + said, finish)
    assert replace(after, seed_verdict=None) == replace(moved(alone, len(thought)), seed_verdict=None)


def moved(reading: Reading, by: int) -> Reading:
    """The same reading, of a text that begins `by` characters earlier."""
    seen = tuple(replace(place, span=(place.span[0] + by, place.span[1] + by)) for place in reading.seen)
    span = None if reading.span is None else (reading.span[0] + by, reading.span[1] + by)
    return replace(reading, span=span, seen=seen)


@every_form_with_a_verdict
@MANY
@given(data=st.data(), finish=FINISHES)
def test_a_forced_verdict_reads_as_itself(form: Form, data: st.DataObject, finish: FinishReason) -> None:
    judge, text = form.judge, data.draw(completions(form))
    assert judge.verdict is not None
    if not judge.read(text, finish).answered:
        begun = unfinished(text, judge.verdict, thinks=judge.thinks) + judge.verdict.opening
        for name in judge.verdict.labels.names:
            assert answer(judge.read(begun + name, FinishReason.STOP), judge.slots) == judge.verdict.labels.match(name)


def answer(reading: Reading, slots: int) -> Winner | int | None:
    return reading.winner if slots == 2 else next(iter(reading.scores), None)


@contextmanager
def in_linear_time(start: str) -> Iterator[None]:
    """Fail where a long text takes more, counted in this process's own CPU time: a busy machine fails nobody."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"a long text of {start[:40]!r} takes more than {CPU_S} s")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def begun_tags(verdict: VerdictForm | None) -> list[str]:
    """The starts of tags that are never finished."""
    tags = ["user", *([verdict.tag] if verdict is not None else [])]
    return [start for tag in tags for start in (f"<{tag} ", f"<{tag} x", f"<{tag}>", f"</{tag} ")]


@pytest.mark.parametrize("name", names())
def test_a_long_hostile_text_is_read_in_linear_time(name: str) -> None:
    form = Form(name, {}, golden(name))
    judge = form.judge
    starts = ["<", "(", "{", '{"a":', '"', "\\", "[", "\\boxed{", "<think>", "</think>", "a\u0316\u0301", "A ", " "]
    for start in (*starts, *begun_tags(judge.verdict), *filter(None, form.completions)):
        with in_linear_time(start):
            assert judge.read(start * (LONG // len(start)), FinishReason.LENGTH).outcome in Outcome


# Asking


def roles(judge: Family) -> Sequence[str]:
    """The turns of a context: a conversation, or a scenario alone for a family that writes."""
    return ("user",) if judge.task is Task.WRITE else ("user", "assistant", "user")


def places(judge: Family) -> list[str]:
    """A text for each place that callers' texts have in a prompt: the turns, the slots, a principle if one is taken."""
    return [f"(place-{number})" for number in range(len(roles(judge)) + judge.slots + judge.takes_principle)]


def showing(judge: Family, texts: Sequence[str]) -> Showing:
    """A showing with these texts in its places."""
    speakers = roles(judge)
    turns, rest = texts[: len(speakers)], texts[len(speakers) :]
    context = tuple(Message(role, turn) for role, turn in zip(speakers, turns, strict=True))
    return Showing(context, tuple(rest[: judge.slots]), rest[judge.slots] if judge.takes_principle else None)


def careless(form: Form) -> list[str]:
    """What a careless prompt would trip over."""
    slots = ["{context}", "{response_a}", "{response_b}", "{first}", "{second}", "{0}"]
    formats = ["{", "}}", "{{x}}", "%s", "$1", "\\1", "\\g<0>", "\n\n", " ", "é", "\ud835"]
    tags = ["<|im_end|>", "</think>", "</user>", "<user>", *begun_tags(form.judge.verdict)]
    return [*slots, *formats, *tags, *form.lines, *places(form.judge)]


def assert_untouched(judge: Family, texts: Sequence[str]) -> None:
    """The prompt with these texts is the one with the names of the places, each text where its place is named."""
    named = dict(zip(places(judge), texts, strict=True))
    plain = judge.messages(showing(judge, places(judge)))
    expected = [Message(message.role, filled(message.content, named)) for message in plain]
    assert judge.messages(showing(judge, texts)) == expected


@every_form
def test_a_prompt_shows_every_text_the_first_slot_first(form: Form) -> None:
    judge, its_places = form.judge, places(form.judge)
    contents = "\n".join(message.content for message in judge.messages(showing(judge, its_places)))
    assert [place for place in its_places if place not in contents] == []
    slots = [contents.index(place) for place in its_places[len(roles(judge)) :][: judge.slots]]
    assert slots == sorted(slots)


@every_form
def test_a_prompt_leaves_texts_untouched_that_a_careless_one_would_trip_over(form: Form) -> None:
    assert_untouched(form.judge, ["".join([f"(text {i}) ", *careless(form)]) for i, _ in enumerate(places(form.judge))])


@every_form
@MANY
@given(data=st.data())
def test_a_prompt_leaves_any_text_untouched(form: Form, data: st.DataObject) -> None:
    parts = st.one_of(st.sampled_from(careless(form)), st.text(max_size=3))
    text = st.lists(parts, min_size=1, max_size=6).map("".join).filter(str.strip).map(str.strip)
    assert_untouched(form.judge, [data.draw(text) for _ in places(form.judge)])


@every_form
def test_a_long_text_is_whole_and_loses_no_more_than_the_white_space_around_it(form: Form) -> None:
    judge, its_places = form.judge, places(form.judge)
    texts = {place: f" \n\t{place} {'and on ' * 20_000}{place}\u2028 \n" for place in its_places}
    plain = without_white_space(judge.messages(showing(judge, its_places)))
    expected = ["".join(filled(content, texts).split()) for content in plain]
    assert without_white_space(judge.messages(showing(judge, list(texts.values())))) == expected


def filled(content: str, texts: Mapping[str, str]) -> str:
    """A content with other texts in the places of those that it was made with."""
    return re.sub("|".join(map(re.escape, texts)), lambda place: texts[place[0]], content)


def without_white_space(messages: Sequence[Message]) -> list[str]:
    return ["".join(message.content.split()) for message in messages]


@every_form_with_a_verdict
def test_a_text_that_imitates_its_verdict_is_suspected_wherever_it_stands(form: Form) -> None:
    judge, its_places = form.judge, places(form.judge)
    assert judge.verdict is not None
    assert judge.injection_suspected(showing(judge, its_places)) is False
    tag = judge.verdict.tag
    for imitation in (f"<{tag}>", f"</{tag}>", f"<{tag.upper()} >", f"so: <{tag}>{judge.verdict.labels.names[0]}"):
        for number in range(len(roles(judge)) + judge.slots):
            texts = [*its_places[:number], imitation, *its_places[number + 1 :]]
            assert judge.injection_suspected(showing(judge, texts)) is True


@pytest.mark.parametrize("name", names())
def test_a_long_hostile_text_is_searched_in_linear_time(name: str) -> None:
    form = Form(name, {}, golden(name))
    judge = form.judge
    starts = ["<", "<|", "[", " ", "\n", *begun_tags(judge.verdict), *(line[:-1] or line for line in form.lines)]
    for start in starts:
        long = Showing((Message("user", start * (LONG // len(start))),), ("",) * judge.slots)
        with in_linear_time(start):
            assert judge.injection_suspected(long) in (True, False)
