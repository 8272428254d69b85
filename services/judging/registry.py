"""Where model families are found by name.

Guarantee: a family is known by being there: a folder under `protocols/`, or an entry point of an installed package in
the group `assizes.protocols`. The folder's `protocol.py` names its class, or a function that makes one, `PROTOCOL`;
an entry point names it itself.
"""

import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from services.foundation.complaints import complaints
from services.foundation.errors import Misconfigured
from services.judging import protocols
from services.judging.protocol import Family

GROUP = "assizes.protocols"

Maker = Callable[..., Family]


class UnknownProtocol(Misconfigured):
    """No family has this name."""

    code = "unknown_protocol"


def protocol(name: str, options: Mapping[str, object] | None = None) -> Family:
    """The family `name`, made with `options` (a model's `protocol_options` in the fleet file).

    Raises UnknownProtocol, and Misconfigured when the family does not take these options.
    """
    make = _maker(name)
    if foreign := sorted(set(options or ()) - option_names(name)):
        raise Misconfigured(f"the protocol {name} has no option {', '.join(foreign)}")
    try:
        return make(**(options or {}))
    except (TypeError, ValueError) as error:
        why = complaints(error) if isinstance(error, ValidationError) else error
        raise Misconfigured(f"the protocol {name} cannot be made with these options: {why}") from error


def names() -> list[str]:
    """Every family that can be asked for, in alphabetical order."""
    return sorted(_families())


def option_names(name: str) -> frozenset[str]:
    """What the family `name` can be made with. Raises UnknownProtocol."""
    return frozenset(inspect.signature(_maker(name)).parameters)


def golden_cases(name: str) -> Path:
    """What the family `name` must ask and how it must read: `golden.jsonl` beside the module that it is defined in.

    Raises UnknownProtocol.
    """
    return Path(inspect.getfile(sys.modules[_maker(name).__module__])).with_name("golden.jsonl")


def _maker(name: str) -> Maker:
    try:
        load = _families()[name]
    except KeyError:
        raise UnknownProtocol(f"no protocol is called {name}; there are {', '.join(names())}") from None
    return load()


@cache
def _families() -> Mapping[str, Callable[[], Maker]]:
    """Loaders by name: finding a family imports nothing of it."""
    folders = (folder.name for folder in pkgutil.iter_modules(protocols.__path__) if folder.ispkg)
    families: dict[str, Callable[[], Maker]] = {folder: partial(_built_in, folder) for folder in folders}
    for entry in entry_points(group=GROUP):
        if entry.name in families:
            raise Misconfigured(f"two protocols are called {entry.name}; one of them is {entry.value}")
        families[entry.name] = entry.load
    return families


def _built_in(folder: str) -> Maker:
    return cast(Maker, import_module(f"{protocols.__name__}.{folder}.protocol").PROTOCOL)
