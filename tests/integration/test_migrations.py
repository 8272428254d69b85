"""The migrations make exactly the tables that the models describe, and take them down again."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, inspect

from embedded.places import CHECKOUT


def test_the_migrated_database_is_what_the_models_say(database_url: str) -> None:
    config = Config(CHECKOUT / "alembic.ini")
    config.attributes["url"] = database_url
    command.check(config)


def test_going_down_leaves_nothing_behind(engine: Engine, database_url: str) -> None:
    config = Config(CHECKOUT / "alembic.ini")
    config.attributes["url"] = database_url
    command.downgrade(config, "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
