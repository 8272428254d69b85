"""`python -m workers gpu --model NAME` and `python -m workers maintenance`."""

import argparse
import asyncio
import sys

from services.foundation.errors import Misconfigured
from services.foundation.logs import set_up_logs
from services.foundation.settings import load_settings
from workers.app import run_worker
from workers.maintenance.app import keep_house


def main(arguments: list[str]) -> int:
    """Run one worker to its end. Exit codes: 0 stopped in order, 1 failed by itself, 2 misconfigured, 3 its runtime
    is defunct."""
    parser = argparse.ArgumentParser(prog="python -m workers")
    kinds = parser.add_subparsers(dest="kind", required=True)
    gpu = kinds.add_parser("gpu", help="hear for one model, with the runtime that serves it")
    gpu.add_argument("--model", required=True, help="a model's name in the fleet file")
    kinds.add_parser("maintenance", help="bells, rescue, deadlines, partitions and webhooks")
    given = parser.parse_args(arguments)
    try:
        settings = load_settings()
        set_up_logs(settings.log_level, f"worker:{given.model}" if given.kind == "gpu" else "maintenance")
        if given.kind == "gpu":
            return run_worker(settings, given.model)
        asyncio.run(keep_house(settings))
    except Misconfigured as error:
        print(f"misconfigured: {error.message}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
