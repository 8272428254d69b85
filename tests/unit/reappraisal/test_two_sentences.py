"""The gate: what a sentence is and is not, the limits, and that no text is too hostile for it."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.reappraisal.gate import MOST_SENTENCES, MOST_TOKENS, gate
from services.vocabulary import Outcome

LONG = 200_000
CPU_S = 1.0  # what takes linear time needs a tenth of it for so long a text, quadratic time ten times as much

ONE = "Your friend may have been tired."
TWO = "Your friend may have been tired. She did not mean you."
THREE = "Your friend was tired. She did not see you. You can ask her."


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (ONE, 1),
        (TWO, 2),
        (THREE, 3),
        ("no capital and no full stop", 1),
        # where a full stop ends nothing
        ("Dr. Osei and Mr. Lee read your 3.5-page note at 5 p.m. because they care, e.g. about the footnotes.", 1),
        ("It costs $3.50 on example.com, and J. R. Smith paid.", 1),
        ("Maybe it was not about you... people answer in one word when tired.", 1),
        ("You could ask again tomorrow… and see a different face.", 1),
        ("她也许……只是累了。", 1),
        # where one does, and what else does
        ("She left at 5 p.m. You stayed.", 2),
        ("Your friend forgot the date.She forgets her own.You matter to her.", 3),
        ("Was she nervous?! She hid it behind a joke.", 2),
        ("You are strong!You are fine.", 2),
        ("He was tired... She was late... You were there.", 3),
        ("He was tired… She was late… You were there.", 3),
        ("你的同事没有回复，也许只是因为会议太多。这并不表示你的意见不重要。", 2),
        ("かもしれません。でも！はい？", 3),
        ("안녕하세요. 반갑습니다.", 2),
        ("मैं ठीक हूँ। तुम भी।", 2),
        # quotation marks and brackets: inside a sentence, and around all of a line
        ('Your brother\'s "do what you like" may say "I trust you"; he makes no speeches.', 1),
        ('He said "Stop. Go away." and left.', 1),
        ('"You are fine," she said.', 1),
        (f'"{THREE}"', 3),
        (f"“{THREE}”", 3),
        (f"«({THREE})»", 3),
        (f"'{THREE}'", 3),
        (f"‘{THREE}’", 3),
        ("‘Twas the dogs’ fault. She’s tired. It’s late.", 3),
        (f"**{THREE}**", 3),
        ("You are fine.**She is too.** He is.", 3),
        ('"Yes." is short and "No." is shorter', 1),
        ('"Stop. Go." was as kind as "Go. Stop."', 1),
        ("(It was late. You were tired.) It (or she) is fine (now. Here.)", 1),
        ("(You tried.) (She knows.) (It is fine.)", 3),
        ("[You tried.] [She knows.][It is fine.]", 3),
        ("{You tried.} - {She knows.}, {It is fine}", 3),
        ("(You tried. You did.) (She knows. She does.)", 4),
        ("({You tried.}) ((She knows.)) «[It is fine.]»", 3),
        ("You are fine. (You tried.) (She knows.)", 3),
        ("You tried (and she knows). It is fine.", 2),
        ("(You tried.) (She knows.) (It is fine", 3),
        ('"You tried." "She knows." "It is fine."', 3),
        ("（你尽力了。）（她知道。）（没事的。）", 3),
        ("(You) (can) (rest)", 1),
        ('"', 0),
        ("()", 0),
        ('a"', 1),
        # ends of sentences that the library does not know: Khmer, Tibetan, Greek, vertical, Coptic
        ("ខ្ញុំទៅ។ គាត់មក។ ល្អ៕", 3),
        ("ང་། ཁོ། ང་།", 3),
        ("Ήρθες\u037e Είσαι εδώ\u037e Ναι.", 3),
        ("你尽力了︒她知道︒没事的︒", 3),
        ("ⲁⲛⲟⲕ⳹ ⲛⲧⲟⲕ⳹ ⲛⲧⲟϥ⳹", 3),
        # lines and bullets
        ("Your friend was tired\nShe did not see you", 2),
        ("Your friend was tired\r\n\r\nShe did not see you\u2028You can ask", 3),
        ("Your friend was tired\nand did not\n  see you.", 1),
        ("Your friend was tired.\nand you too.", 2),
        ("- she was tired\n- she did not see you\n- ask her", 3),
        ("• she was tired • she did not see you • ask her", 3),
        ("* she was tired\n* she did not see you", 2),
        ("a) she was tired\nb) she did not see you\nc) ask her", 3),
        ("1. Your son slammed the door.\n2. He feels safe at home.", 2),
        ("1.\nYour son slammed the door.\n2.\nHe feels safe at home.", 2),
        ("1. Breathe 2. Rest 3. Call her", 3),
        # without a letter there is no sentence
        (f"{TWO} 🏅", 2),
        ("... You are fine. 2. !!", 1),
        ("", 0),
        (" \n\t", 0),
        ("🌱💪✨", 0),
        ("1. 2. 3.", 0),
        ("?!", 0),
    ],
)
def test_sentences_are_counted_as_people_count_them(text: str, sentences: int) -> None:
    gated = gate(text)
    assert gated.sentences == sentences
    outcome = {0: Outcome.EMPTY, 1: Outcome.ACCEPTED, 2: Outcome.ACCEPTED}.get(sentences, Outcome.TOO_LONG)
    rule = {0: "no_letter", 1: "within_limits", 2: "within_limits"}.get(sentences, "too_many_sentences")
    assert (gated.outcome, gated.rule) == (outcome, rule)


@pytest.mark.parametrize(
    ("token", "between"),
    [
        ("word", " "),
        ("don", "'"),  # a mark is a token too
        ("x" * 20, " "),
        ("é", "\u00a0\n "),
        ("e\u0301", " "),
        ("ठीक", " "),
        ("我", ""),
        ("か", ""),
        ("한", ""),
        ("\U00020000", ""),
        ("a1", " "),
        ("x" * 40, " "),  # longer than any word: counted twice
        (";b", ""),
    ],
)
def test_no_more_than_120_tokens_are_accepted(token: str, between: str) -> None:
    each = 2 if token in ("x" * 40, ";b") or between == "'" else 1
    most = MOST_TOKENS // each
    assert gate(between.join([token] * most)).outcome is Outcome.ACCEPTED
    gated = gate(between.join([token] * (most + 1)))
    assert (gated.outcome, gated.rule, gated.sentences) == (Outcome.TOO_LONG, "too_many_tokens", 1)


def test_of_a_text_over_the_cap_the_sentences_are_counted_that_begin_under_it() -> None:
    run_on = "; you may see it so" * 50
    assert gate(f"{ONE} You may see it so{run_on}. And so.").sentences == 2
    assert gate(f"{run_on}. And so. And so. And so.").sentences == 1
    assert gate(f"{THREE}{run_on}.").rule == "too_many_sentences"
    late = gate("- " * MOST_TOKENS + ONE)
    assert (late.outcome, late.rule, late.sentences) == (Outcome.TOO_LONG, "too_many_tokens", 0)
    assert gate("- " * LONG).outcome is Outcome.EMPTY


# What texts are made of that a careless gate would trip over: the library itself breaks down on "A", a wide blank, ".".
pieces = st.one_of(
    st.sampled_from(
        ["A", "a", "1", ".", "...", "…", "?!", "。", " ", "\u00a0", "\u2028", "\n", "\x1c", "\x85", "\ud800"]
    ),
    st.sampled_from(["Dr.", "e.g.", "p.m.", "</think>", "•", "- ", "1. ", "a) ", "*", "_", "\u0301", "🏅", "我", "\0"]),
    st.sampled_from(list("\"'“”‘’«»()[]{}「」<>\\")),
    st.text(max_size=3),
    st.sampled_from([ONE, TWO, THREE]),
)
texts = st.lists(pieces, max_size=40).map("".join)


@given(texts)
@example("A\u00a0.")
@example("\ud800. A")
def test_every_text_is_gated_and_only_short_ones_are_accepted(text: str) -> None:
    gated = gate(text)
    assert gated.sentences >= 0
    assert (gated.outcome is Outcome.EMPTY) == (not any(map(str.isalpha, text)))
    if gated.outcome is Outcome.EMPTY:
        assert gated.sentences == 0
    if gated.outcome is Outcome.ACCEPTED:
        assert 1 <= gated.sentences <= MOST_SENTENCES
        assert len(text.split()) <= MOST_TOKENS  # a token holds no white space
    else:
        assert gated.outcome in (Outcome.EMPTY, Outcome.TOO_LONG)


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=8), min_size=1, max_size=12), st.integers(1, 5))
def test_plain_sentences_are_counted_however_they_are_laid_out(words: list[str], count: int) -> None:
    sentence = " ".join(["You", *words, "well"]) + "!"
    for between in (" ", "", "\n", "\n\n", " \t "):
        assert gate(between.join([sentence] * count)).sentences == count


@given(texts, st.sampled_from(["", " ", "\n\n", "\t\u00a0"]), st.sampled_from(["", " ", "\r\n", "\u2028 "]))
def test_white_space_around_a_text_changes_nothing(text: str, before: str, after: str) -> None:
    assert gate(before + text.strip() + after) == gate(text.strip())


@pytest.mark.parametrize(
    "start",
    [
        *(".", "(", '"', "“", "「", "[", "<", "…", "。", "?!", "-", "•", "*", "_", "1. ", "\ud800", "\u0301"),
        *("a", "a.", "A. ", "a\u0301", "x" * 20 + " ", "我", "Dr. ", "e.g. ", '"a. ', "(A. ", "http://a.b/c. "),
        *("[]", "(a", "(a.) ", "((a.)", "{[("),
        *("\n", "\r\n", " ", "a\n", ".\n", "A\n\n", "a)\n", "…A", "</think>", "\u2028•"),
        *(ONE, THREE),
    ],
)
def test_a_long_hostile_text_is_gated_in_linear_time(start: str) -> None:
    text = start * (LONG // len(start)) + "b"
    before = time.process_time()
    gated = gate(text)
    assert time.process_time() - before < CPU_S
    assert gated.outcome in (Outcome.TOO_LONG, Outcome.ACCEPTED)
    assert (gated.outcome is Outcome.ACCEPTED) == (not start.strip())
