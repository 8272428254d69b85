"""Connections as the parts of the service make them."""

from sqlalchemy import Engine

from services.foundation.database import KEEPALIVE


def test_a_session_asks_in_time_whether_its_server_is_there(engine: Engine) -> None:
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        set_so = {name: value for name, value in driver.info.get_parameters().items() if name in KEEPALIVE}
    assert set_so == {name: str(value) for name, value in KEEPALIVE.items()}
    silence = KEEPALIVE["keepalives_idle"] + KEEPALIVE["keepalives_interval"] * KEEPALIVE["keepalives_count"]
    assert max(silence, KEEPALIVE["tcp_user_timeout"] / 1000) <= 30
