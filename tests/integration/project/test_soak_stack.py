"""The stack of a soak ends all of its parts, whatever became of one of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parts import eventually
from tests.soak.stack import Part, Stack, Stuck


def test_a_part_that_ended_by_itself_keeps_no_other_from_being_ended(
    short_folder: Path, free_port: Callable[[], int]
) -> None:
    stack = Stack(short_folder, [free_port() for _ in range(4)])
    try:
        stays = Part("stays", ("http.server", str(free_port()), "--bind", "127.0.0.1"))
        stack.parts = [stays, Part("ends", ("this",))]
        with pytest.raises(Stuck, match="ends ended by itself"):
            eventually(stack.tick, "a part is missed")
        child = stays.child
        assert child is not None
        assert child.ended() is None
        stack.freeze(stays, 600)
    finally:
        stack.close()
    assert child.ended() is not None
