"""The fleet file: what it refuses."""

from pathlib import Path

import pytest

from services.foundation.errors import Misconfigured
from services.foundation.fleet import load_fleet


@pytest.mark.parametrize(("name", "reason"), [("cpu", "needs no runtime"), ("Big", "pattern"), ("-a", "pattern")])
def test_a_model_has_a_name_that_can_name_its_queue(tmp_path: Path, name: str, reason: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(f'[models.{name}]\nprotocol = "sdrm"\nweights = "nowhere"\n', encoding="utf-8")
    with pytest.raises(Misconfigured, match=reason):
        load_fleet(file)
