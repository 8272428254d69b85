"""`python -m embedded`: install, run or try the whole service on this machine.

Guarantee: SIGINT, SIGTERM and SIGHUP stop whatever was started, in order, and a second one does not cut that short.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from embedded.places import HOME
from embedded.processes import EmbeddedError
from services.foundation.errors import Misconfigured

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Someone asked this process to end."""


def main(argv: list[str]) -> int:
    """Run one command. Exit codes: 0 done, or `up` stopped as asked; 1 a part failed, or stopped half-way; 2 usage."""
    if argv[:1] == ["scripted"]:
        from embedded.scripted.command import main as scripted  # noqa: PLC0415 - installing happens before there are libraries

        return scripted(argv[1:])
    given = _parser().parse_args(argv)
    for number in _STOPPING:
        signal.signal(number, _stop)
    command: Callable[[argparse.Namespace], int] = given.run
    try:
        return command(given)
    except Stopped:
        return 0 if given.command == "up" else 1
    except (EmbeddedError, Misconfigured) as error:
        print(f"embedded: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m embedded", description="The whole service on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)

    install = commands.add_parser("install", help="make an environment, and the models that run in it")
    install.add_argument("environment", choices=["application", "sglang"])
    install.set_defaults(run=_install)

    fleet = argparse.ArgumentParser(add_help=False)
    fleet.add_argument("--fleet", default="judging", help="a shipped fleet, judging or reappraising, or a fleet file")
    for name, run, options, text in (
        ("up", _up, [_stack(port=8000), fleet], "run the stack until Ctrl-C"),
        ("demo", _demo, [_stack(port=0), fleet], "run the stack, judge the sample, show the report and stop"),
        ("reappraise", _reappraise, [_stack(port=0)], "run the stack, reappraise the sample, show the report and stop"),
    ):
        commands.add_parser(name, parents=options, help=text).set_defaults(run=run)

    measure = commands.add_parser("bench", help="measure what the service itself costs")
    measure.add_argument("--home", type=Path, default=HOME / "bench", help="where data, keys and logs are kept")
    measure.add_argument("--items", type=int, default=10_000, help="comparisons to judge, each in both orders")
    measure.set_defaults(run=_bench)

    share = commands.add_parser("shares", help="measure what a large job costs the others")
    share.add_argument("--home", type=Path, default=HOME / "shares", help="where data, keys and logs are kept")
    share.add_argument("--items", type=int, default=200_000, help="comparisons of the large job")
    share.add_argument("--service", type=float, default=2.0, help="seconds that the runtime takes for a call")
    share.set_defaults(run=_shares)

    spare = commands.add_parser("samples", help="measure what stopping samples early saves and changes")
    spare.add_argument("--home", type=Path, default=HOME / "samples", help="where data, keys and logs are kept")
    spare.add_argument("--items", type=int, default=400, help="comparisons to judge; an even number")
    spare.set_defaults(run=_samples)

    commands.add_parser("scripted", help="speak SGLang's HTTP by rule; `scripted --help` tells more")
    return parser


def _stack(port: int) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--home", type=Path, default=HOME, help="where data, keys and logs are kept")
    options.add_argument("--port", type=int, default=port, help="the API's port on 127.0.0.1; 0: a free one")
    options.add_argument("--runtime", choices=["sglang", "scripted"], default="sglang", help="what answers calls")
    return options


def _install(given: argparse.Namespace) -> int:
    from embedded import environments, models  # noqa: PLC0415

    if given.environment == "application":
        environments.ensure_application()
    else:
        for name in ("smollm2", "tiny-qwen3", "tiny-rm-0", "tiny-rm-1"):
            models.make(name)
    return 0


def _bench(given: argparse.Namespace) -> int:
    from embedded.bench import bench  # noqa: PLC0415

    return bench(given.home.absolute(), items=given.items)


def _shares(given: argparse.Namespace) -> int:
    from embedded.bench_shares import shares  # noqa: PLC0415

    return shares(given.home.absolute(), items=given.items, service_s=given.service)


def _samples(given: argparse.Namespace) -> int:
    from embedded.samples import samples  # noqa: PLC0415

    return samples(given.home.absolute(), items=given.items)


def _up(given: argparse.Namespace) -> int:
    from embedded.fleet import chosen  # noqa: PLC0415
    from embedded.up import up  # noqa: PLC0415

    fleet = chosen(given.fleet)
    return up(given.home.absolute(), port=given.port, scripted=given.runtime == "scripted", fleet=fleet)


def _demo(given: argparse.Namespace) -> int:
    from embedded.demo import demo  # noqa: PLC0415
    from embedded.fleet import chosen  # noqa: PLC0415

    fleet = chosen(given.fleet)
    return demo(given.home.absolute(), port=given.port, scripted=given.runtime == "scripted", fleet=fleet)


def _reappraise(given: argparse.Namespace) -> int:
    from embedded.reappraise import reappraise  # noqa: PLC0415

    return reappraise(given.home.absolute(), port=given.port, scripted=given.runtime == "scripted")


def _stop(_signal: int, _frame: FrameType | None) -> None:
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)
    raise Stopped


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
