"""Settings: read once from the environment by a composition root, then passed on. Never global.

Guarantee: what starts is what was meant. A variable with the prefix `ASSIZES_` that no setting knows is an error, so
is a setting given both directly and as a `*_FILE`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from services.foundation.errors import Misconfigured

PREFIX = "ASSIZES_"
SECRETS = ("DATABASE_URL", "REDIS_URL")  # these may also be given as NAME_FILE: the path of a file that holds the value


class Settings(BaseSettings):
    """Everything that can be set. Durations are seconds, unless they say days."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    database_url: str = Field(description="PostgreSQL, as an SQLAlchemy URL: postgresql+psycopg://...")
    redis_url: str = Field(description="the broker: redis://host:port/0 or redis+socket:///path?virtual_host=0")
    fleet: Path = Field(default=Path("fleet.toml"), description="the fleet file")
    public_url: str = Field(
        default="http://127.0.0.1:8000", description="how callers reach the API; stands in webhooks"
    )
    webhook_allow: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="addresses or networks that webhooks may reach although they are not public"
    )
    spool_dir: Path | None = Field(default=None, description="where uploads are spooled; the system's own by default")
    max_upload_bytes: int = Field(default=4 << 30, description="the largest request body")
    trace_prompts: Literal["text", "hash"] = Field(default="text", description="what a trace keeps of its prompt")
    keep_traces: int | None = Field(
        default=None, ge=1, description="days for which a job's traces are kept after its end; for ever by default"
    )
    keep_jobs: int | None = Field(
        default=None, ge=1, description="days after its end for which a job is kept; for ever by default"
    )
    lease: float = Field(default=30.0, gt=0, description="how long a silent worker keeps its chunks")
    heartbeat: float = Field(default=10.0, gt=0, description="how often a worker renews its lease")
    chunk_slots: int = Field(default=16, ge=1, description="chunks that one worker hears at once")
    drain: float = Field(default=30.0, ge=0, description="how long running calls may go on after SIGTERM")
    runtime_start: float = Field(default=1800.0, gt=0, description="how long a runtime may take to load its model")
    runtime_patience: float = Field(
        default=60.0, gt=0, description="how long a runtime may be silent, and then how long it has to answer a canary"
    )
    runtime_failures: int = Field(
        default=5,
        ge=1,
        description="failures of a launched runtime, without 30 minutes well in between, at which it is given up",
    )
    runtime_logs: Path = Field(default=Path(".assizes/logs"), description="where launched runtimes write their logs")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    metrics_port: int = Field(
        default=0, ge=0, le=65535, description="where a worker shows its metrics; 0: nowhere. The API has /metrics"
    )
    metrics_host: str = Field(default="127.0.0.1", description="the address that port listens on")

    @field_validator("heartbeat")
    @classmethod
    def _outlasted(cls, heartbeat: float, info: ValidationInfo) -> float:
        if heartbeat > info.data.get("lease", heartbeat * 2) / 2:
            raise ValueError("at most half of the lease: a worker may miss one beat")
        return heartbeat

    @classmethod
    def load(cls, environment: Mapping[str, str]) -> "Settings":
        """Read the settings out of an environment. Raises Misconfigured, which names variables but no values."""
        given = {name.removeprefix(PREFIX): value for name, value in environment.items() if name.startswith(PREFIX)}
        for secret in SECRETS:
            if (path := given.pop(f"{secret}_FILE", None)) is None:
                continue
            if secret in given:
                raise Misconfigured(f"{PREFIX}{secret} and {PREFIX}{secret}_FILE are both set")
            try:
                given[secret] = Path(path).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise Misconfigured(f"{PREFIX}{secret}_FILE: {error.strerror}: {path}") from error
        known = {name.upper() for name in cls.model_fields}
        if unknown := sorted(given.keys() - known):
            raise Misconfigured(f"unknown settings: {', '.join(PREFIX + name for name in unknown)}")
        values: dict[str, object] = {name.lower(): value for name, value in given.items()}
        if "webhook_allow" in values:
            values["webhook_allow"] = tuple(part.strip() for part in given["WEBHOOK_ALLOW"].split(",") if part.strip())
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            places = "; ".join(
                f"{PREFIX}{str(e['loc'][0]).upper()}: {e['msg']}" for e in error.errors(include_input=False)
            )
            raise Misconfigured(places) from None


def load_settings() -> Settings:
    """The settings of this process."""
    return Settings.load(os.environ)
