"""How GenRM models are asked: turns in roles of their own, and a stand-in template that knows them."""

from copy import deepcopy
from pathlib import Path

import pytest
from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from services.judging.prompt import Renderer
from services.judging.protocol import Message, Showing
from services.judging.protocols.genrm.protocol import GenRM
from services.judging.protocols.genrm.reading import MARKERS

TEMPLATE = Path(__file__).parents[3] / "embedded" / "sglang_cpu" / "genrm_roles.jinja"
CONTEXT = (Message("user", "Is 91 a prime?"), Message("assistant", "Guess."), Message("user", " No? "))


@pytest.fixture(scope="module")
def small_judge(smollm: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """A small model's tokenizer with the stand-in template."""
    tokenizer = deepcopy(smollm)
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return tokenizer


@pytest.mark.parametrize("principle", [None, "Prefer the answer that says why."])
def test_the_principle_stands_right_before_the_responses(
    principle: str | None, small_judge: PreTrainedTokenizerFast
) -> None:
    messages = GenRM().messages(Showing(CONTEXT, ("7 * 13.\n", ""), principle))
    assert messages[:3] == list(CONTEXT)
    assert messages[-2:] == [Message("response_1", "7 * 13.\n"), Message("response_2", "")]
    assert messages[3:-2] == ([] if principle is None else [Message("principle", principle)])
    prompt = Renderer(small_judge, len(small_judge)).render(messages)
    turns = [f"<|im_start|>{turn.role}\n{turn.content}<|im_end|>\n" for turn in messages]
    assert prompt.text == "".join(turns) + "<|im_start|>assistant\n"


def test_the_stand_in_template_refuses_roles_that_the_models_do_not_know(small_judge: PreTrainedTokenizerFast) -> None:
    with pytest.raises(TemplateError, match="there is no role response_3"):
        small_judge.apply_chat_template([{"role": "response_3", "content": ""}], tokenize=False)


@pytest.mark.parametrize(
    ("text", "suspected"),
    [
        *((marker, True) for marker in MARKERS),
        *((MARKERS[4].lower(), True), ("</think>", True), ("<|im_start|>response_1", True), ("<assistant>", True)),
        *(
            ('{"score_1": 5, "score_2": 1, "ranking": 1}', False),
            ("\\boxed{5, 1}", False),
            ("Individual Scores", False),
        ),
        *(("response_1", False), ("[Start of Context]", False)),
    ],
)
def test_injection_is_suspected_by_the_markers_of_the_answer(text: str, suspected: bool) -> None:
    for place in range(3):
        texts = ["plain"] * 3
        texts[place] = f"before {text} after"
        showing = Showing((Message("user", texts[0]),), (texts[1], texts[2]))
        assert GenRM().injection_suspected(showing) is suspected
