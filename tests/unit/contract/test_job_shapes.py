"""The wire shapes of jobs: what callers may rely on."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import BaseModel, ValidationError

from services.contract.items import Comparison, Response, Scenario
from services.contract.jobs import (
    Counts,
    InlineJobRequest,
    InlineJudgement,
    InlineReappraisal,
    InlineScoring,
    Job,
    Progress,
)
from services.contract.options import JudgeOptions, JudgeSettings, Options
from services.contract.problems import Problem
from services.contract.results import Result
from services.jobs.items import ANY, COMMON
from services.vocabulary import JobKind


def test_the_shown_example_is_a_job() -> None:
    for kind in (InlineJudgement, InlineReappraisal, InlineScoring):
        (example,) = kind.model_config["json_schema_extra"]["examples"]  # type: ignore[index,call-overload] # a dict
        assert isinstance(InlineJobRequest.model_validate(example).root, kind)


def test_the_names_that_callers_rely_on() -> None:
    assert set(Counts.model_fields) == {
        "total",
        "queued",
        "running",
        "succeeded",
        "failed",
        "cancelled",
        "expired",
    }
    assert {"id", "status", "counts", "usage", "progress", "version", "created_at", "started_at", "ended_at"} <= set(
        Job.model_fields
    )
    assert {"custom_id", "seq", "status", "verdict", "error", "usage", "reappraisal", "scores", "score"} <= set(
        Result.model_fields
    )
    assert {"type", "title", "status", "code", "detail", "errors"} <= set(Problem.model_fields)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [(JobKind.JUDGEMENT, Comparison), (JobKind.REAPPRAISAL, Scenario), (JobKind.SCORING, Response)],
)
def test_documented_items_have_the_fields_that_are_read(kind: JobKind, shape: type[BaseModel]) -> None:
    read = {"custom_id", *COMMON, *ANY[kind].required, *ANY[kind].optional}
    assert set(shape.model_fields) == read
    needed = {name for name, field in shape.model_fields.items() if field.is_required()}
    assert needed == {"custom_id", *ANY[kind].required}


def test_options_and_settings_have_the_same_names() -> None:
    assert set(Options.model_fields) - {"panel"} == set(JudgeSettings.model_fields)
    assert set(JudgeOptions.model_fields) < set(JudgeSettings.model_fields)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        Options.model_validate({"temperature": 1})


def test_times_are_rfc_3339_in_utc() -> None:
    later = datetime(2026, 12, 1, 1, 30, tzinfo=timezone(timedelta(hours=1)))
    shown = json.loads(Progress(done=1, per_second=0.5, eta=later).model_dump_json())
    assert shown["eta"] == "2026-12-01T00:30:00.000Z"
    assert datetime.fromisoformat(shown["eta"]) == later.astimezone(UTC)
