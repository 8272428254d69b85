"""What the scripted model says: a pure function of the prompt's tokens, the sampling parameters and a seed.

Guarantee: the same call is always answered alike, in this process and in the next. A call bound to some texts gets one
of them, with log-probabilities that sum to one over these; a free call gets a short analysis that ends in
`<verdict>A</verdict>` or `<verdict>B</verdict>`. Both say the same about the same prompt, unless an order has the
verdict drawn.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from statistics import NormalDist

from embedded.scripted.vocabulary import Vocabulary

REMARKS = (
    "The first answer opens with the point that was asked about.",
    " The second answer spends its opening on background.",
    " Both stay close to the question.",
    " One of them supports its claim with an example, the other asserts it.",
    " The wording of the second is plainer.",
    " The first leaves a condition unstated that changes the result.",
    " Checking the steps one by one shows no error in either.",
    " The second says what it does not know.",
)
VERDICTS = (" <verdict>A</verdict>", " <verdict>B</verdict>")
_NORMAL = NormalDist()


class UnreadableRegex(ValueError):
    """The pattern is broken, or more than an alternation of literal texts."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished completion: `ids` include the end token when `finish` is a stop at it, `text` leaves it out.

    `logprobs` are those of the choices it was bound to, or of the two verdicts, first slot first; `tokens` the choices'
    ids where each is one token, else empty. A classifier writes nothing and answers with `numbers`.
    """

    ids: Sequence[int]
    text: str
    finish: Mapping[str, object]
    logprobs: Sequence[float] = ()
    tokens: Sequence[int] = ()
    numbers: Sequence[float] = ()


class Dice:
    """Uniform and normal draws that depend on what was hashed and on nothing else."""

    def __init__(self, prompt: bytes, sampling: Mapping[str, object], seed: int) -> None:
        # at temperature 0 no other parameter can change what is drawn
        drawn = [sampling.get(name) for name in ("temperature", "top_p", "top_k", "min_p", "sampling_seed")]
        mixed = blake2b(prompt, digest_size=64)
        mixed.update(repr((seed, drawn if drawn[0] else 0)).encode())
        self._digest = mixed.digest()

    def uniform(self, at: int) -> float:
        """A number in (0, 1); `at` in 0..15 says which."""
        return (int.from_bytes(self._digest[4 * at : 4 * at + 4], "little") + 0.5) / 2**32

    def normal(self, at: int) -> float:
        """A standard normal number."""
        return _NORMAL.inv_cdf(self.uniform(at))


LENGTH, SERVICE, SCORES = 0, 1, 2  # which draw is for what; a score for the i-th label is at SCORES + i
COIN = 0  # of dice that were cast for a verdict alone


def label_logprobs(dice: Dice, labels: int, bias: float, p_first: float | None) -> list[float]:
    """Natural log-probabilities of `labels` choices, first slot first; `bias` is added to its logit."""
    if p_first is not None and labels > 1:
        return [math.log(p_first)] + [math.log((1 - p_first) / (labels - 1))] * (labels - 1)
    scores = [dice.normal(SCORES + min(at, 13)) + (bias if at == 0 else 0.0) for at in range(labels)]
    total = math.log(sum(math.exp(score) for score in scores))
    return [score - total for score in scores]


def literals(pattern: str) -> list[str]:
    """The texts that an alternation of literals allows: `(>A|>B)`, `A|B`, `a\\.b`. Raises UnreadableRegex."""
    body = pattern[1:-1] if pattern.startswith("(") and pattern.endswith(")") else pattern
    body = body.removeprefix("?:")
    texts, current, escaped = [], "", False
    for character in body:
        if escaped:
            if character.isalnum():
                raise UnreadableRegex(f"the class \\{character} is not scripted")
            current, escaped = current + character, False
        elif character == "\\":
            escaped = True
        elif character == "|":
            texts.append(current)
            current = ""
        elif character in "()[]{}*+?.^$":
            raise UnreadableRegex(f"{character!r} is not scripted, only alternations of literal texts")
        else:
            current += character
    if escaped:
        raise UnreadableRegex("the pattern ends in a backslash")
    return [*texts, current]


class Answerer:
    """Writes answers in one vocabulary. `bias` is a logit for the first slot."""

    def __init__(self, vocabulary: Vocabulary, seed: int, bias: float) -> None:
        self.vocabulary = vocabulary
        self.seed = seed
        self.bias = bias
        self._encoded = lru_cache(maxsize=4096)(lambda text: tuple(vocabulary.encode(text)))

    def dice(self, prompt: bytes, sampling: Mapping[str, object]) -> Dice:
        """The draws of one call."""
        return Dice(prompt, sampling, self.seed)

    def drawn(self, dice: Dice, tokens: Sequence[int], limit: int, p_first: float | None) -> Answer:
        """Answer with one of `tokens`."""
        logprobs = label_logprobs(dice, len(tokens), self.bias, p_first)
        best = tokens[logprobs.index(max(logprobs))]
        return self._cut([best, self.vocabulary.end], self.vocabulary.piece(best), limit, logprobs, tokens)

    def bound(self, dice: Dice, texts: Sequence[str], limit: int, p_first: float | None) -> Answer:
        """Answer with one of `texts`."""
        logprobs = label_logprobs(dice, len(texts), self.bias, p_first)
        best = texts[logprobs.index(max(logprobs))]
        return self._cut([*self._encoded(best), self.vocabulary.end], best, limit, logprobs)

    def free(
        self, dice: Dice, sampling: Mapping[str, object], limit: int, p_first: float | None, coin: Dice | None = None
    ) -> Answer:
        """A short analysis and a verdict: the likelier one, or as `coin` falls. No natural end with `ignore_eos`."""
        logprobs = label_logprobs(dice, len(VERDICTS), self.bias, p_first)
        start = int(dice.uniform(LENGTH) * len(REMARKS))
        remarks = [REMARKS[(start + at) % len(REMARKS)] for at in range(2 + start % 4)]
        second = logprobs[1] > logprobs[0] if coin is None else coin.uniform(COIN) >= math.exp(logprobs[0])
        texts = [*remarks, VERDICTS[second]]
        ids = [token for text in texts for token in self._encoded(text)]
        if sampling.get("ignore_eos"):
            return self._cut(ids * (limit // len(ids) + 1), "", limit, logprobs)
        return self._cut([*ids, self.vocabulary.end], "".join(texts), limit, logprobs)

    def told(self, text: str, finish: str, limit: int) -> Answer:
        """Answer with a given text, ended as told (`stop`, `length`) or by `limit`."""
        ids = list(self._encoded(text))
        if finish == "length" and len(ids) <= limit:
            return Answer(ids, text, {"type": "length", "length": len(ids)})
        return self._cut([*ids, self.vocabulary.end], text, limit)

    def stopped(self, answer: Answer, stops: Sequence[str]) -> Answer:
        """The answer as stop strings would have cut it: the earliest ends it and is left out of the text."""
        found = [(at, stop) for stop in stops if stop and (at := answer.text.find(stop)) >= 0]
        if not found:
            return answer
        at, stop = min(found)
        low, high = 0, len(answer.ids)
        while low < high:  # the fewest tokens whose text holds the stop string
            middle = (low + high) // 2
            if stop in self.vocabulary.decode(answer.ids[:middle])[at:]:
                high = middle
            else:
                low = middle + 1
        return Answer(answer.ids[:low], answer.text[:at], {"type": "stop", "matched": stop}, answer.logprobs)

    def _cut(
        self, ids: Sequence[int], text: str, limit: int, logprobs: Sequence[float] = (), tokens: Sequence[int] = ()
    ) -> Answer:
        """`ids` end in the end token, or are longer than `limit`; what does not fit into that is cut off."""
        if len(ids) <= limit:
            return Answer(ids, text, {"type": "stop", "matched": self.vocabulary.end}, logprobs, tokens)
        ids = ids[:limit]
        return Answer(ids, self.vocabulary.decode(ids), {"type": "length", "length": limit}, logprobs, tokens)
