"""What an item must be, by the kind of its job.

Guarantee: an item is accepted only as it will be heard. What is wrong with one is the first fault in the order of the
checks: unknown fields, missing fields, values. The first two name every field that is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from services.contract.items import MOST_BASELINES
from services.contract.options import MOST_CANDIDATES
from services.foundation.jsontext import literal
from services.jobs.strictjson import DEEPEST, pointer_to, too_deep
from services.vocabulary import JobKind

LONGEST_ID = 512  # code points
LABELS = frozenset({"A", "B", "tie"})
COMMON = frozenset({"custom_id", "cluster", "metadata"})
NESTED = f"nested more than {DEEPEST} levels"
TURNS = ("user", "assistant")
MESSAGE = {"role", "content"}


class Wrong(Exception):
    """What is wrong with the item at hand."""

    def __init__(self, code: str, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer_to(*path)
        self.message = message


def invalid(message: str, *path: str | int) -> Wrong:
    """A value that cannot be used."""
    return Wrong("invalid_value", path, message)


@dataclass(frozen=True, slots=True)
class Facets:
    """What reports and chunk sizes need of an item: its label, the systems that wrote its texts, how many these are."""

    label: str | int | None
    systems: Sequence[str | None]
    texts: int


class Shape(Protocol):
    """The items of one kind of job, as one job wants them."""

    @property
    def required(self) -> tuple[str, ...]:
        """The fields of its own that an item needs, in the order in which they are missed."""
        ...

    @property
    def optional(self) -> frozenset[str]:
        """The fields of its own that an item may have."""
        ...

    def facets(self, value: dict[str, Any]) -> Facets:
        """The facets of an item that has its fields. Raises Wrong."""
        ...

    def misfit(self, texts: int) -> Wrong | None:
        """What keeps an item with so many texts from being an item of this very job."""
        ...


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The items of a judgement. `candidates`: how many each has to have, None for any number."""

    candidates: int | None = None
    required = ("context", "candidates")
    optional = frozenset({"label"})

    def facets(self, value: dict[str, Any]) -> Facets:
        """See Shape."""
        _check_context(value["context"])
        systems = _systems_of_candidates(value["candidates"])
        label = value.get("label")
        _check_label(label, len(systems))
        return Facets(label, systems, len(systems))

    def misfit(self, texts: int) -> Wrong | None:
        """See Shape."""
        if self.candidates is None or texts == self.candidates:
            return None
        return invalid(f"the job's pairs compare {self.candidates} candidates", "candidates")


@dataclass(frozen=True, slots=True)
class Scenarios:
    """The items of a reappraisal. `compared`: whether each has to have a baseline."""

    compared: bool = False
    required = ("scenario",)
    optional = frozenset({"baseline"})

    def facets(self, value: dict[str, Any]) -> Facets:
        """See Shape."""
        scenario = value["scenario"]
        if type(scenario) is not str or not scenario or scenario.isspace():
            raise invalid("scenario is a string, not blank", "scenario")
        systems = [_system_of_baseline(text, path) for path, text in baselines(value)]
        if len(systems) > MOST_BASELINES or value.get("baseline") == []:
            raise invalid(f"an item has 1 to {MOST_BASELINES} baselines", "baseline")
        return Facets(None, systems, 1 + len(systems))

    def misfit(self, texts: int) -> Wrong | None:
        """See Shape."""
        missing = self.compared and texts == 1
        return (
            Wrong("missing_field", ("baseline",), "the job compares, so an item needs a baseline") if missing else None
        )


@dataclass(frozen=True, slots=True)
class Responses:
    """The items of a scoring job."""

    required = ("context", "response")
    optional = frozenset({"system"})

    def facets(self, value: dict[str, Any]) -> Facets:
        """See Shape."""
        _check_context(value["context"])
        if type(value["response"]) is not str:
            raise invalid("response is a string", "response")
        system = value.get("system")
        if system is not None and type(system) is not str:
            raise invalid("system is a string", "system")
        return Facets(None, (system,), 1)

    def misfit(self, texts: int) -> Wrong | None:  # noqa: ARG002 - as Shape has it
        """See Shape: any one will do."""
        return None


ANY: dict[JobKind, Shape] = {
    JobKind.JUDGEMENT: Comparisons(),
    JobKind.REAPPRAISAL: Scenarios(),
    JobKind.SCORING: Responses(),
}


def baselines(value: dict[str, Any]) -> list[tuple[tuple[str | int, ...], Any]]:
    """The baselines of an item, each with its path: one alone or a list, plain texts or with their systems."""
    given = value.get("baseline")
    if given is None:
        return []
    if type(given) is list:
        return [(("baseline", index), text) for index, text in enumerate(given)]
    return [(("baseline",), given)]


def check_common(value: dict[str, Any]) -> None:
    """What items of every kind have. Raises Wrong."""
    cluster, metadata = value.get("cluster"), value.get("metadata")
    if cluster is not None and type(cluster) is not str:
        raise invalid("cluster is a string", "cluster")
    if metadata is not None and type(metadata) is not dict:
        raise invalid("metadata is an object", "metadata")
    if metadata and too_deep(metadata, DEEPEST - 1):
        raise invalid(NESTED, "metadata")


def facets_json(facets: Facets, cluster: str | None) -> str:
    """The facets as they are stored: JSON `{"label", "cluster", "systems"}`."""
    label = str(facets.label) if type(facets.label) is int else _literal(facets.label)  # type: ignore[arg-type] # no int
    return f'{{"label":{label},"cluster":{_literal(cluster)},"systems":[{",".join(map(_literal, facets.systems))}]}}'


def _system_of_baseline(text: Any, path: tuple[str | int, ...]) -> str | None:
    if type(text) is str:
        return None
    if type(text) is not dict:
        raise invalid("a baseline is a string, or an object with content and system", *path)
    return _system(text, path)


def _systems_of_candidates(candidates: Any) -> list[str | None]:
    """The system of each candidate, where it has one."""
    if type(candidates) is not list:
        raise invalid("candidates is a list", "candidates")
    if not 2 <= len(candidates) <= MOST_CANDIDATES:
        raise invalid(f"an item has 2 to {MOST_CANDIDATES} candidates", "candidates")
    systems = []
    for index, candidate in enumerate(candidates):
        if type(candidate) is not dict:
            raise invalid("a candidate is an object", "candidates", index)
        systems.append(_system(candidate, ("candidates", index)))
    return systems


def _system(text: dict[str, Any], path: tuple[str | int, ...]) -> str | None:
    """The system that a text's object names."""
    if type(text.get("content")) is not str:
        raise invalid("content is a string", *path, "content")
    system = text.get("system")
    if system is not None and type(system) is not str:
        raise invalid("system is a string", *path, "system")
    if len(text) > 1 + ("system" in text):
        name = next(name for name in text if name not in {"content", "system"})
        raise invalid("a text has content and system only", *path, name)
    return system


def _check_label(label: Any, candidates: int) -> None:
    if label is None or (type(label) is str and label in (LABELS if candidates == 2 else {"tie"})):
        return
    if candidates == 2:
        raise invalid('label is "A", "B", "tie" or null', "label")
    if type(label) is not int or not 0 <= label < candidates:
        raise invalid('label is the index of a candidate, "tie" or null', "label")


def _check_context(context: Any) -> None:
    """Messages alternate, a user's first and last, none of them blank."""
    if type(context) is not list:
        raise invalid("context is a list of messages", "context")
    for index, message in enumerate(context):
        if type(message) is not dict:
            raise invalid("a message is an object", "context", index)
        if message.get("role") != TURNS[index & 1]:
            raise invalid("roles alternate: user, assistant, user ...", "context", index, "role")
        content = message.get("content")
        if type(content) is not str or not content or content.isspace():
            raise invalid("a message's content is a string, not blank", "context", index, "content")
        if len(message) > len(MESSAGE):
            name = next(name for name in message if name not in MESSAGE)
            raise invalid("a message has role and content only", "context", index, name)
    if not len(context) & 1:
        raise invalid("a context starts and ends with a user's message", "context")


def _literal(text: str | None) -> str:
    return "null" if text is None else literal(text)
