"""The fleet: which models are served, how each is asked and how its runtime is started, and their committees.

Guarantee: a fleet that loads is well-formed, and every member of a committee is one of its models. Whether a protocol
exists is checked by who uses it.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from services.foundation.complaints import complaints
from services.foundation.errors import Misconfigured

CPU = "cpu"  # chunks that need no runtime are queued under this name, so no model has it


def _not_reserved(name: str) -> str:
    if name == CPU:
        raise ValueError(f"{CPU} is the name of the queue of what needs no runtime")
    return name


ModelName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$"), AfterValidator(_not_reserved)]


class FleetSampling(BaseModel):
    """Overrides of a protocol's own sampling; None keeps the protocol's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    max_tokens: int | None = Field(default=None, ge=1)


class FleetModel(BaseModel):
    """One model of the fleet: a judge is this together with its protocol."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ModelName
    protocol: str
    weights: str = Field(description="hub id or directory; also where the tokenizer is")
    revision: str | None = None
    chat_template: Path | None = Field(default=None, description="a file in place of the tokenizer's own template")
    context_length: int = Field(default=32768, ge=256)
    sampling: FleetSampling = FleetSampling()
    options: Mapping[str, object] = Field(default_factory=dict, description="defaults of job options, such as mode")
    protocol_options: Mapping[str, object] = Field(default_factory=dict, description="what the protocol is made with")
    gpus: int = Field(default=1, ge=0)
    launch: tuple[str, ...] = Field(default=(), description="extra flags for sglang.launch_server")
    url: str | None = Field(default=None, description="attach to this server instead of launching one")
    python: str | None = Field(default=None, description="the interpreter that has SGLang; this one's by default")


class Member(BaseModel):
    """A member of a committee: one model, or an ensemble of several seeds of one architecture."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ModelName
    models: tuple[ModelName, ...] = Field(min_length=1, max_length=16)


def _named(member: object) -> object:
    """A member that is but a model's name bears that name."""
    return {"name": member, "models": [member]} if isinstance(member, str) else member


class Committee(BaseModel):
    """Models that score texts together. `weights` by member, 1 for those not named; only their ratios count.

    `anchors` is a file of texts to normalise by where `normalise` is `reference`; None: the shipped ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ModelName
    members: tuple[Annotated[Member, BeforeValidator(_named)], ...] = Field(min_length=1, max_length=8)
    weights: Mapping[str, Annotated[float, Field(gt=0, le=1_000)]] = Field(default_factory=dict)
    normalise: Literal["reference", "group"] = "reference"
    anchors: Path | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [member.name for member in self.members]
        models = [model for member in self.members for model in member.models]
        if len(set(names)) < len(names) or len(set(models)) < len(models):
            raise ValueError("a member or a model stands twice in the committee")
        if unknown := sorted(set(self.weights) - set(names)):
            raise ValueError(f"weights are by member, and {', '.join(unknown)} is none")
        if self.anchors is not None and self.normalise == "group":
            raise ValueError("group normalises by an item's own candidates: it needs no anchors")
        return self


class Fleet(BaseModel):
    """All models and committees by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: Mapping[str, FleetModel]
    committees: Mapping[str, Committee] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for committee in self.committees.values():
            for member in committee.members:
                if missing := [model for model in member.models if model not in self.models]:
                    raise ValueError(f"the committee {committee.name} has no such model: {', '.join(missing)}")
        return self


def load_fleet(path: Path) -> Fleet:
    """Read a fleet file. Raises Misconfigured with the place that is wrong."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Misconfigured(f"the fleet file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"the fleet file {path} is not TOML: {error}") from error
    models = _entries(document, "models", path, "chat_template")
    committees = _entries(document, "committees", path, "anchors")
    try:
        return Fleet.model_validate({**document, "models": models, "committees": committees})
    except ValidationError as error:
        raise Misconfigured(f"the fleet file {path} is wrong: {complaints(error)}") from None


def _entries(document: Mapping[str, object], kind: str, path: Path, file: str) -> dict[str, dict[str, object]]:
    """The named entries of one kind; the `file` that one names is beside the fleet file, unless it says where."""
    table = document.get(kind, {})
    if not isinstance(table, dict) or not all(isinstance(entry, dict) for entry in table.values()):
        raise Misconfigured(f"the fleet file {path} is wrong: {kind}: each entry is a table, [{kind}.NAME]")
    entries = {name: {**entry, "name": name} for name, entry in table.items()}
    for entry in entries.values():
        if file in entry:
            entry[file] = path.parent / str(entry[file])
    return entries
