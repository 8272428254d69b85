"""Proceedings, asked without a runtime: every call has its answer, in whatever order they come."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from services.judging.heard import unanswered
from services.judging.proceeding import CallKey, Proceeding
from services.judging.runtime import Completion
from services.vocabulary import FinishReason, Outcome

Came = Completion | Outcome  # an answer, or what a call without one came to
NO_ANSWERS = (Outcome.FAILED, Outcome.ABORTED, Outcome.CONTEXT_OVERFLOW)


def said(text: str, finish: FinishReason = FinishReason.STOP, **logprobs: float) -> Completion:
    """An answer of 7 tokens to a prompt of 100, 60 of them cached."""
    return Completion(text, finish, 100, 60, 7, tuple(logprobs.items()))


def take(proceeding: Proceeding, key: CallKey, came: Came) -> list[CallKey]:
    """Record what a call came to."""
    heard = unanswered(came) if isinstance(came, Outcome) else proceeding.read(key, came)
    return proceeding.record(key, heard)


def ask(
    proceeding: Proceeding,
    answer: Callable[[CallKey], Came],
    choose: Callable[[list[CallKey]], CallKey] = lambda keys: keys[0],
) -> dict[CallKey, Came]:
    """Ask until nothing is open, always the call that is chosen of those that are. What came, in its order."""
    came: dict[CallKey, Came] = {}
    while keys := proceeding.open_calls():
        key = choose(keys)
        assert key not in came
        came[key] = answer(key)
        before = set(keys) - {key}
        opened = take(proceeding, key, came[key])
        assert set(proceeding.open_calls()) == before | set(opened)
    assert proceeding.ended
    return came


def replay(proceeding: Any, came: Mapping[CallKey, Came], keys: Iterable[CallKey]) -> Any:
    """Take in stored calls, by their turn. Returns the proceeding."""
    for key in sorted(keys, key=lambda key: key.turn):
        assert proceeding.is_open(key)
        take(proceeding, key, came[key])
    return proceeding


def assert_numbered(keys: Iterable[CallKey]) -> None:
    """Every call has a number of its own, which a smallint holds and which names it."""
    numbers = {key.number: key for key in keys}
    assert len(numbers) == len(list(keys))
    assert max(numbers, default=0) < 2**15
    assert all(CallKey.from_number(number) == key for number, key in numbers.items())
