"""Environments made from recipes: whole or made anew, by one at a time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from embedded.environments import ensure
from embedded.processes import EmbeddedError, run


class Recipe:
    """A recipe of one file; filling an environment copies that file into it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "recipe.lock"
        self.environment = folder / "environment"
        self.turn = folder / "turn"
        self.fills = 0
        self.broken = False

    def ensure(self) -> Path:
        return ensure(self.environment, self.turn, [self.file], self._fill)

    def _fill(self, python: Path) -> None:
        self.fills += 1
        assert not (self.environment / "half").exists(), "what an interrupted set-up left is still there"
        (self.environment / "half").touch()
        if self.broken:
            raise EmbeddedError("the network went away")
        (self.environment / "made").write_text(self.file.read_text())
        assert run("python", [python, "-c", "print('runs')"], cwd=python.parent) == "runs\n"


@pytest.mark.slow
def test_an_environment_is_made_once_and_again_when_its_recipe_changes_or_it_was_interrupted(tmp_path: Path) -> None:
    recipe = Recipe(tmp_path)
    recipe.file.write_text("one")
    recipe.broken = True
    with pytest.raises(EmbeddedError, match="network"):
        recipe.ensure()
    recipe.broken = False

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(recipe.ensure), pool.submit(recipe.ensure)
        assert first.result() == second.result()
    assert recipe.fills == 2
    assert (recipe.environment / "made").read_text() == "one"

    recipe.file.write_text("two")
    recipe.ensure()
    recipe.ensure()
    assert recipe.fills == 3
    assert (recipe.environment / "made").read_text() == "two"
