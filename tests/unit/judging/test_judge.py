"""A judge's questions fit the context with their answers, and with the verdict that may have to be forced behind."""

import copy
from dataclasses import replace

import pytest
from transformers import PreTrainedTokenizerFast

from services.foundation.fleet import FleetModel
from services.judging.hearing import Comparison, Hearing, HearingOptions
from services.judging.judge import GREEDY, LEAST_TOKENS, Judge, Question
from services.judging.prompt import UnsupportedTokenizer
from services.judging.protocol import Message
from services.judging.runtime import Completion, Label, Sampling
from services.judging.scoring import ToScore, open_scoring
from services.judging.writing import Writing
from services.vocabulary import Decide, FinishReason, Orders

PAIR = Comparison((Message("user", "Which is the capital of France?"),), ("Paris.", "Lyon."))
TO_SCORE = ToScore(PAIR.context, PAIR.candidates)
WANTED = Sampling(temperature=0.7, top_p=0.8, top_k=20, max_tokens=1 << 20)  # more than any context here


@pytest.fixture(params=["smollm", "qwen", "thinking_qwen"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    """Each of the tokenizers in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def judge(tokenizer: PreTrainedTokenizerFast) -> Judge:
    """An sdrm judge with room for a long answer; it thinks where its template opens the thinking."""
    model = FleetModel(name="judge", protocol="sdrm", weights="w", context_length=4096)
    made = Judge.of(model, tokenizer, len(tokenizer))
    made.protocol.thinks = str(tokenizer.chat_template).endswith("<think>\n' }}{% endif %}")
    return made


def test_a_template_that_leaves_out_a_role_or_refuses_it_is_refused(qwen: PreTrainedTokenizerFast) -> None:
    model = FleetModel(name="judge", protocol="genrm", weights="w")
    deaf, strict = copy.deepcopy(qwen), copy.deepcopy(qwen)
    deaf.chat_template = "{% for m in messages if m['role'] == 'user' %}{{ m['content'] }}{% endfor %}"
    strict.chat_template = (
        "{{ raise_exception('no such role') if messages[-1]['role'] != 'user' else messages[0]['content'] }}"
    )
    with pytest.raises(UnsupportedTokenizer, match="leaves out the turn of the role response_1"):
        Judge.of(model, deaf, len(deaf))
    with pytest.raises(UnsupportedTokenizer, match="no such role"):
        Judge.of(model, strict, len(strict))


def test_a_first_genrm_needs_no_template_with_a_principle(qwen: PreTrainedTokenizerFast) -> None:
    first = copy.deepcopy(qwen)
    known = "{% if m['role'] in ['user', 'response_1', 'response_2'] %}{{ '<|im_start|>' + m['content'] }}{% endif %}"
    first.chat_template = "{% for m in messages %}" + known + "{% endfor %}"
    model = FleetModel(name="judge", protocol="genrm", weights="w")
    assert Judge.of(model, first, len(first)).protocol.name == "genrm"
    with pytest.raises(UnsupportedTokenizer, match="principle"):
        Judge.of(model.model_copy(update={"protocol_options": {"principle": True}}), first, len(first))


def test_a_model_that_scores_is_sent_the_conversation_alone_and_asked_for_numbers(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    judge = Judge.of(FleetModel(name="rm", protocol="reward", weights="w"), tokenizer, len(tokenizer))
    scored = open_scoring("rm", judge.protocol, TO_SCORE, None)
    paris, lyon = judge.questions([(scored, key) for key in scored.open_calls()], judge.sampling)
    for question, text in ((paris, "Paris."), (lyon, "Lyon.")):
        turns = [{"role": "user", "content": PAIR.context[0].content}, {"role": "assistant", "content": text}]
        assert question.prompt.ids == tokenizer.apply_chat_template(turns, return_dict=False)
        assert (question.classifies, question.labels) == (True, ())
        assert question.sampling is not None
    call = judge.first_call("rid")
    assert (call.classifies, call.labels) == (True, ())
    assert tokenizer.decode(call.input_ids).endswith("the first answer<|im_end|>\n")


def test_what_several_calls_show_is_put_into_tokens_once(tokenizer: PreTrainedTokenizerFast) -> None:
    writer = Judge.of(FleetModel(name="w", protocol="reappraisal", weights="w"), tokenizer, len(tokenizer))
    first, second, same = (
        Writing(writer.protocol, scenario, 3, 2) for scenario in ("I was laughed at.", "I failed.", "I failed.")
    )
    calls = [(writing, key) for writing in (first, second, same) for key in writing.open_calls()]
    prompts = [question.prompt for question in writer.questions(calls, writer.sampling)]
    assert len(prompts) == 9
    assert len({id(prompt.ids) for prompt in prompts}) == 2
    for prompt, (writing, key) in zip(prompts, calls, strict=True):
        assert prompt == writer.renderer.render(writer.protocol.messages(writing.showing(key)))


def test_of_what_is_scored_only_the_prompt_must_fit(tokenizer: PreTrainedTokenizerFast) -> None:
    judge = Judge.of(FleetModel(name="rm", protocol="reward", weights="w"), tokenizer, len(tokenizer))
    scored = open_scoring("rm", judge.protocol, TO_SCORE, None)
    calls = [(scored, key) for key in scored.open_calls()[:1]]
    (question,) = judge.questions(calls, judge.sampling)
    length = len(question.prompt.ids)
    (fits,) = judge.within(length + 1).questions(calls, judge.sampling)
    (short,) = judge.within(length).questions(calls, judge.sampling)
    assert fits == question
    assert (short.sampling, short.classifies) == (None, True)


def test_a_judge_that_writes_is_not_asked_for_numbers(judge: Judge) -> None:
    assert not asked(judge, hearing(judge)).classifies
    assert not judge.first_call("rid").classifies


def hearing(judge: Judge, decide: Decide = Decide.VOTE) -> Hearing:
    return Hearing("judge", "q", PAIR, judge.protocol, HearingOptions(orders=Orders.GIVEN, decide=decide))


def asked(judge: Judge, heard: Hearing, sampling: Sampling = WANTED) -> Question:
    """The only call that is open."""
    (key,) = heard.open_calls()
    (question,) = judge.questions([(heard, key)], sampling)
    return question


def wrote(heard: Hearing, text: str, finish: FinishReason) -> None:
    (key,) = heard.open_calls()
    heard.record(key, heard.read(key, Completion(text, finish, 1, 0, 1)))


def test_an_answer_gets_the_rest_of_the_context_but_what_a_forced_verdict_needs(judge: Judge) -> None:
    question = asked(judge, hearing(judge))
    assert question.sampling is not None
    assert 1 < judge.reserve < 32
    assert len(question.prompt.ids) + question.sampling.max_tokens + judge.reserve == judge.context_length
    few = asked(judge, hearing(judge), replace(WANTED, max_tokens=100))
    assert few.sampling == replace(WANTED, max_tokens=100)


def test_a_verdict_can_be_forced_behind_an_answer_that_took_all_its_room(
    judge: Judge, tokenizer: PreTrainedTokenizerFast
) -> None:
    heard = hearing(judge)
    question = asked(judge, heard)
    assert question.sampling is not None
    longest = tokenizer.decode(tokenizer.encode("so it is, " * 4096)[: question.sampling.max_tokens])
    wrote(heard, longest, FinishReason.LENGTH)
    follow_up = asked(judge, heard)
    assert follow_up.sampling == GREEDY
    assert len(follow_up.prompt.ids) < judge.context_length
    assert follow_up.prompt.text.endswith("\n\n<verdict>")


def test_what_leaves_no_room_for_an_answer_and_a_forced_verdict_is_not_sent(judge: Judge) -> None:
    length = len(asked(judge, hearing(judge)).prompt.ids)
    least = judge.within(length + judge.reserve + LEAST_TOKENS)
    fits = asked(least, hearing(least))
    assert fits.sampling is not None
    assert fits.sampling.max_tokens == LEAST_TOKENS
    short = judge.within(length + judge.reserve + LEAST_TOKENS - 1)
    assert asked(short, hearing(short)).sampling is None


def test_the_probability_of_a_written_verdict_is_asked_for_at_its_own_token(
    judge: Judge, tokenizer: PreTrainedTokenizerFast
) -> None:
    heard = hearing(judge, Decide.SOFT)
    prompt = asked(judge, heard).prompt
    text = "Paris it is.</think>\n\n<verdict>A</verdict> So it is."
    wrote(heard, text, FinishReason.STOP)
    question = asked(judge, heard)
    assert question.sampling == GREEDY
    assert question.prompt.text == prompt.text + "Paris it is.</think>\n\n<verdict>"
    written = tokenizer.encode(text, add_special_tokens=False)
    place = len(question.prompt.ids) - len(prompt.ids)
    assert question.prompt.ids == prompt.ids + written[:place]
    assert question.labels[0] == Label("A", written[place], tokenizer.decode([written[place]]))
