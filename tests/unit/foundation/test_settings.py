"""Settings that contradict each other stop a process at its start."""

import pytest

from services.foundation.errors import Misconfigured
from services.foundation.settings import Settings

LEAST = {"ASSIZES_DATABASE_URL": "postgresql://x", "ASSIZES_REDIS_URL": "redis://x", "ASSIZES_FLEET": "fleet.toml"}


def test_a_lease_outlasts_a_heartbeat_that_is_missed() -> None:
    assert Settings.load(LEAST | {"ASSIZES_LEASE": "20", "ASSIZES_HEARTBEAT": "10"}).lease == 20
    with pytest.raises(Misconfigured, match="HEARTBEAT"):
        Settings.load(LEAST | {"ASSIZES_LEASE": "15", "ASSIZES_HEARTBEAT": "10"})
