"""The fleet: which models are served, how each is asked and how its runtime is started.

Guarantee: a fleet that loads is well-formed. Whether a protocol exists is checked by who uses it.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

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


class Fleet(BaseModel):
    """All models by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: Mapping[str, FleetModel]


def load_fleet(path: Path) -> Fleet:
    """Read a fleet file. Raises Misconfigured with the place that is wrong."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Misconfigured(f"the fleet file {path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"the fleet file {path} is not TOML: {error}") from error
    try:
        models = {name: {**entry, "name": name} for name, entry in document.pop("models", {}).items()}
        for entry in models.values():
            if "chat_template" in entry:  # beside the fleet file, unless it says where
                entry["chat_template"] = path.parent / str(entry["chat_template"])
        return Fleet.model_validate({"models": models, **document})
    except (ValidationError, TypeError) as error:
        raise Misconfigured(f"the fleet file {path} is wrong: {error}") from error
