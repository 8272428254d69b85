"""The fleet file: what it refuses."""

from pathlib import Path

import pytest

from services.foundation.errors import Misconfigured
from services.foundation.fleet import Fleet, load_fleet


@pytest.mark.parametrize(("name", "reason"), [("cpu", "needs no runtime"), ("Big", "pattern"), ("-a", "pattern")])
def test_a_model_has_a_name_that_can_name_its_queue(tmp_path: Path, name: str, reason: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(f'[models.{name}]\nprotocol = "sdrm"\nweights = "nowhere"\n', encoding="utf-8")
    with pytest.raises(Misconfigured, match=reason):
        load_fleet(file)


@pytest.mark.parametrize("name", ["", "a b", "r\\u0000m", "x" * 64])
def test_a_member_has_a_name_that_can_be_a_key(tmp_path: Path, name: str) -> None:
    file = tmp_path / "fleet.toml"
    model = '[models.rm]\nprotocol = "reward"\nweights = "nowhere"\n'

    def load(member: str) -> Fleet:
        committee = f'[committees.c]\nmembers = [{{ name = "{member}", models = ["rm"] }}]\n'
        file.write_text(model + committee, encoding="utf-8")
        return load_fleet(file)

    assert load("rm-0.6b_x").committees["c"].members[0].name == "rm-0.6b_x"
    with pytest.raises(Misconfigured, match=r"committees\.c\.members\.0\.name"):
        load(name)
