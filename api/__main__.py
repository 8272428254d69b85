"""`python -m api`: serve the API, or look after keys (`python -m api keys create --tenant NAME`)."""

import argparse
import sys
from collections.abc import Sequence

from sqlalchemy.exc import OperationalError

from api.keys import create_key, list_keys, revoke_key
from services.foundation.database import make_engine, transaction
from services.foundation.errors import AssizesError, Misconfigured
from services.foundation.logs import set_up_logs
from services.foundation.settings import Settings, load_settings


def keys(settings: Settings, arguments: argparse.Namespace) -> None:
    """Make, revoke or list keys. Raises NotFound, Conflict."""
    engine = make_engine(settings.database_url, "assizes-keys", pool_size=None)
    with transaction(engine) as connection:
        match arguments.action:
            case "create":
                made = create_key(connection, arguments.tenant)
                lines = [f"key: {made.key}"]
                if made.webhook_secret:
                    lines.append(f"webhook secret: {made.webhook_secret}")
            case "revoke":
                revoke_key(connection, hint=arguments.hint, key=arguments.key)
                lines = ["revoked"]
            case _:
                lines = [
                    f"{row['tenant']}\t{row['hint']}...\t{row['created_at']:%Y-%m-%d}"
                    f"\t{'revoked' if row['revoked_at'] else 'live'}"
                    for row in list_keys(connection)
                ]
    for line in lines:
        print(line)


def main(arguments: Sequence[str]) -> int:
    """Run one command. Returns the exit status: 1 when it could not be done, 2 when it was not meant so."""
    parser = argparse.ArgumentParser(prog="python -m api", description="Serve the Assizes API.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=32, help="requests that one process answers at once")
    commands = parser.add_subparsers(dest="command")
    actions = commands.add_parser("keys", help="look after keys").add_subparsers(dest="action", required=True)
    actions.add_parser("create", help="print a new key once").add_argument("--tenant", required=True)
    which = actions.add_parser("revoke", help="end a key").add_mutually_exclusive_group(required=True)
    which.add_argument("--hint", help="how the key begins, as `keys list` shows it")
    which.add_argument("--key", help="the key itself")
    actions.add_parser("list", help="show every key's beginning, tenant and state")
    asked = parser.parse_args(arguments)
    try:
        settings = load_settings()
        set_up_logs(settings.log_level, "api")
        if asked.command == "keys":
            keys(settings, asked)
        else:
            from api.server import serve  # noqa: PLC0415 - takes seconds, which looking after keys need not wait for

            serve(settings, asked.host, asked.port, asked.workers, asked.threads)
    except Misconfigured as error:
        print(f"python -m api: {error.message}", file=sys.stderr)
        return 2
    except AssizesError as error:
        print(f"python -m api: {error.message}", file=sys.stderr)
        return 1
    except OperationalError as error:
        print(f"python -m api: the database cannot be used: {error.orig}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
