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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[models.m]\nweights = "w"\ngpus = -1\nport = 5\n',
            "is wrong: models.m.protocol: Field required; "
            "models.m.gpus: Input should be greater than or equal to 0; models.m.port: Extra inputs are not permitted",
        ),
        (
            '[models.m]\nprotocol = "reward"\nweights = "w"\n[committees.c]\nmembers = ["m", "m"]\n',
            "is wrong: committees.c: a member or a model stands twice in the committee",
        ),
        ("models = 3\n", "is wrong: models: each entry is a table, [models.NAME]"),
        ("[committees]\nc = 3\n", "is wrong: committees: each entry is a table, [committees.NAME]"),
        ("[models.m\n", "is not TOML: Expected ']' at the end of a table declaration (at line 1, column 10)"),
    ],
)
def test_what_is_wrong_is_told_on_one_line_with_its_place_and_no_value(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Misconfigured) as refused:
        load_fleet(file)
    assert refused.value.message == f"the fleet file {file} {told}"


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Misconfigured, match="is not TOML: 'utf-8' codec can't decode byte 0xff in position 0"):
        load_fleet(tmp_path / "fleet.toml")


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
