"""How a judge is asked and heard, one idea a test."""

from services.judging.hearing import Comparison, Hearing, HearingOptions
from services.judging.protocol import Message, Showing
from services.judging.registry import protocol
from services.judging.runtime import Completion
from services.vocabulary import FinishReason, Flag, Orders, Outcome, Winner

QUESTION = (Message("user", "What is the capital of France?"),)
ANSWERS = ("The capital of France is Paris.", "Lyon.")
PAIR = Comparison(QUESTION, ANSWERS)


def written(text: str) -> Completion:
    """What a runtime brings back when a judge has written `text` to its end."""
    return Completion(text, FinishReason.STOP, prompt_tokens=300, cached_tokens=0, completion_tokens=20)


def test_a_protocol_is_how_a_judge_is_asked() -> None:
    (message,) = protocol("sdrm").messages(Showing(QUESTION, ANSWERS))
    assert message.role == "user"
    assert "[Start of Assistant B's Response]\n<assistant>\nLyon.\n</assistant>" in message.content


def test_a_reading_says_what_a_completion_decides_and_where_it_says_so() -> None:
    completion = "Lyon is not the capital.\n\n<verdict>A</verdict>"
    reading = protocol("sdrm").read(completion, FinishReason.STOP)
    assert (reading.outcome, reading.winner) == (Outcome.DECIDED, Winner.A)
    assert completion[slice(*reading.span)] == "A"


def test_a_reading_never_guesses() -> None:
    reading = protocol("sdrm").read("I would lean towards B.", FinishReason.STOP)
    assert (reading.outcome, reading.winner) == (Outcome.UNPARSEABLE, None)


def test_a_hearing_shows_the_candidates_in_both_orders() -> None:
    hearing = Hearing("sdrm-4b", "capital", PAIR, protocol("sdrm"), HearingOptions())
    for call, verdict in zip(hearing.open_calls(), ("A", "B"), strict=True):
        hearing.record(call, hearing.read(call, written(f"Paris it is. <verdict>{verdict}</verdict>")))
    opinion = hearing.opinion()
    assert (opinion.winner, opinion.consistent) == (Winner.A, True)


def test_a_judge_who_always_prefers_the_first_slot_has_no_preference() -> None:
    hearing = Hearing("sdrm-4b", "capital", PAIR, protocol("sdrm"), HearingOptions())
    for call in hearing.open_calls():
        hearing.record(call, hearing.read(call, written("<verdict>A</verdict>")))
    opinion = hearing.opinion()
    assert (opinion.winner, opinion.consistent, opinion.first_slot) == (Winner.TIE, False, 2)


def test_a_judge_who_does_not_decide_is_asked_for_one_word_more() -> None:
    hearing = Hearing("sdrm-4b", "capital", PAIR, protocol("sdrm"), HearingOptions(orders=Orders.GIVEN))
    (call,) = hearing.open_calls()
    hearing.record(call, hearing.read(call, written("Hard to say.")))
    (follow_up,) = hearing.open_calls()
    assert follow_up.forced
    assert hearing.written_before(follow_up) == "Hard to say.\n\n<verdict>"
    chosen = Completion("A", FinishReason.LENGTH, 320, 300, 1, (("A", -0.2), ("B", -1.7)))
    hearing.record(follow_up, hearing.read(follow_up, chosen))
    assert hearing.opinion().winner is Winner.A
    assert Flag.FORCED in hearing.opinion().flags
