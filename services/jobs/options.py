"""How judges hear, out of what a job asks, what a model's entry in the fleet says, and what a family does by itself.

Guarantee: no option is ignored without a word, and none is accepted that a judge of the job cannot follow.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from services.contract.options import (
    JudgeOptions,
    JudgeSettings,
    Options,
    PanelOptions,
    PanelSettings,
    RereadOptions,
    Sampling,
    SamplingOptions,
)
from services.foundation.complaints import complaints
from services.foundation.errors import Fault, Misconfigured
from services.foundation.fleet import Fleet, FleetModel
from services.jobs.strictjson import pointer_to
from services.judging.hearing import default_decide, ways_to_decide
from services.judging.pairings import connected
from services.judging.protocol import Family
from services.judging.registry import protocol
from services.judging.weighing import Scales
from services.vocabulary import Decide, Mode, OnConflict, Orders, Task

ALIKE = "at temperature 0, or with one token to draw from, every {} would be the same"
OPTIONS = ("options",)  # where a job's options stand in its body
DOES = {
    Task.JUDGE: "judges texts",
    Task.WRITE: "writes reappraisals",
    Task.SCORE: "scores texts, as a member of committees",
}


def find_family(fleet: Fleet, model: str, task: Task, place: str) -> tuple[Family | None, list[Fault]]:
    """The family of a model that is named at `place` for a task, or what keeps it from doing that."""
    try:
        family = family_of(fleet, model)
    except Misconfigured as error:
        return None, [Fault("unknown_model", place, error.message)]
    if family.task is not task:
        return None, [Fault("unsuitable_model", place, f"{model} {DOES[family.task]}")]
    return family, []


def family_of(fleet: Fleet, name: str) -> Family:
    """The family of a model. Raises Misconfigured: the fleet has no such model, or it cannot be asked."""
    model = fleet.models.get(name)
    if model is None:
        raise Misconfigured(f"the fleet has no such model; it has {', '.join(sorted(fleet.models))}")
    return protocol(model.protocol, model.protocol_options)


def contradictions(
    judge: str, settings: JudgeSettings, family: Family, place: Sequence[str] = OPTIONS
) -> Iterator[Fault]:
    """What each option allows and this judge, or all of them together, do not."""

    def fault(option: str, message: str) -> Fault:
        return Fault("invalid_value", pointer_to(*place, option), f"{judge}: {message}")

    if settings.mode is Mode.DIRECT:
        if family.verdict is None:
            yield fault("mode", "its verdict cannot be forced, so it has no direct mode")
            return
        if settings.samples > 1:
            yield fault("samples", "direct mode draws nothing: every sample would be the same")
    elif settings.samples > 1 and draws_nothing(settings.sampling, family):
        yield fault("samples", ALIKE.format("sample"))
    if not isinstance(settings.pairs, str) and not connected(settings.pairs, 1 + max(map(max, settings.pairs))):
        yield fault("pairs", "they do not tie the candidates 0, 1, 2 ... together")
    if settings.decide not in (ways := ways_to_decide(family)):
        yield fault("decide", f"it decides by {' or '.join(ways)}")
    elif settings.tie_margin * Scales.of(family, settings.decide, settings.margin).unit >= 0.5:
        yield fault("tie_margin", "with so wide a margin everything is a tie")


def draws_nothing(sampling: Sampling, family: Family) -> bool:
    """Whether a model writes the same text every time: at temperature 0, or with one token to draw from."""
    temperature = family.sampling.temperature if sampling.temperature is None else sampling.temperature
    top_k = family.sampling.top_k if sampling.top_k is None else sampling.top_k
    return temperature == 0 or top_k == 1


def idle_options(
    options: JudgeOptions | RereadOptions,
    settings: Mapping[str, JudgeSettings],
    families: Mapping[str, Family],
    place: Sequence[str] = OPTIONS,
) -> Iterator[Fault]:
    """What a job asks for and none of its judges can do: an option is never ignored without a word."""
    pairwise = any(family.slots == 2 for family in families.values())
    can_use = {
        "orders": (pairwise, "none of the judges compares candidates in an order"),
        "pairs": (pairwise, "none of the judges compares pairs"),
        "margin": (
            any(family.slots == 2 and family.grades for family in families.values()),
            "none of the judges grades the two candidates that it compares",
        ),
        "forced_verdict": (
            any(family.verdict is not None for family in families.values()),
            "no judge's verdict can be forced",
        ),
        "on_conflict": (
            any(judge.decide is Decide.VOTE for judge in settings.values()),
            "only votes can conflict, and no judge decides by them",
        ),
        "principle": (
            any(family.takes_principle for family in families.values()),
            "none of the judges takes a principle",
        ),
        "score_policies": (len(settings) == 1, "a panel's scores are not adjusted"),
        "panel": (len(settings) > 1, "a panel has several judges"),
    }
    for option, (used, why) in can_use.items():
        if not used and getattr(options, option, None) is not None:
            yield Fault("invalid_value", pointer_to(*place, option), why)
    panel: PanelOptions | None = getattr(options, "panel", None)
    for judge in (panel and panel.weights) or ():
        if judge not in settings:
            yield Fault("invalid_value", pointer_to("options", "panel", "weights", judge), "no judge of this job")


def task_of(model: FleetModel) -> Task | None:
    """What a model does; None where its protocol is not known here."""
    try:
        return protocol(model.protocol, model.protocol_options).task
    except Misconfigured:
        return None


def check_defaults(model: FleetModel) -> None:
    """Raises Misconfigured where the defaults in a model's entry are none, or nothing that it does can use them.

    A writer draws, and hears nothing; what scores draws nothing either. Of a protocol that is not known here nothing is
    said.
    """
    try:
        JudgeOptions.model_validate(model.options)
    except ValidationError as error:
        raise Misconfigured(f"the options of the model {model.name} are wrong: {complaints(error)}") from None
    task = task_of(model)
    if task is not None and (idle := _idle_defaults(model, task)):
        raise Misconfigured(f"the model {model.name} {DOES[task]}, which has no use for {', '.join(idle)}")


def _idle_defaults(model: FleetModel, task: Task) -> list[str]:
    options = [f"options.{name}" for name in model.options]
    match task:
        case Task.JUDGE:
            return []
        case Task.WRITE:
            return [option for option in options if option != "options.sampling"]
        case Task.SCORE:
            return options + [f"sampling.{name}" for name in model.sampling.model_dump(exclude_none=True)]


def default_mode(model: FleetModel) -> Mode:
    """The mode of a judge's job that names none."""
    return JudgeOptions.model_validate(model.options).mode or Mode.REASON


def resolve(options: Options, model: FleetModel, family: Family) -> JudgeSettings:
    """Every option: the job's own, else the model's default, else the system's."""
    # stopping keeps a winner and exaggerates how far it is ahead, which is what a panel's mean is made of
    averaged = options.panel is not None and options.panel.decide == "mean"
    fallback = JudgeOptions.model_validate(model.options)

    def pick(name: str, default: Any) -> Any:
        for given in (options, fallback):
            if (value := getattr(given, name)) is not None:
                return value
        return default

    sampling = resolve_sampling(model, family, options.sampling)
    mode = pick("mode", Mode.REASON)
    return JudgeSettings(
        orders=pick("orders", Orders.BOTH),
        samples=pick("samples", 1),
        early_stop=pick("early_stop", "never" if averaged else "certain"),
        mode=mode,
        decide=pick("decide", default_decide(family, mode)),
        margin=pick("margin", "blended"),
        pairs=options.pairs or "all",
        score_policies=options.score_policies,
        principle=pick("principle", None) if family.takes_principle else None,
        forced_verdict=pick("forced_verdict", True),
        on_conflict=pick("on_conflict", OnConflict.TIE),
        tie_margin=pick("tie_margin", 0.0),
        reading=pick("reading", "strict"),
        sampling=sampling,
    )


def resolve_panel(options: PanelOptions | None, judges: Sequence[str]) -> PanelSettings | None:
    """How the judges' opinions become one verdict; None for a single judge."""
    if len(judges) == 1:
        return None
    given = options or PanelOptions()
    weights = given.weights or {}
    return PanelSettings(
        decide=given.decide or "majority",
        weights={judge: weights.get(judge, 1.0) for judge in judges},
        tie_margin=given.tie_margin or 0.0,
    )


def resolve_sampling(model: FleetModel, family: Family, given: SamplingOptions | None) -> Sampling:
    """How a model draws: as the job says, else as its entry in the fleet does, by its options before its own.

    What none of these says is its family's own.
    """
    fallback = JudgeOptions.model_validate(model.options).sampling
    entry = model.sampling.model_dump(exclude_none=True)
    return Sampling(**{**asdict(family.sampling), **entry, **_given(fallback), **_given(given)})


def _given(sampling: SamplingOptions | None) -> dict[str, Any]:
    return sampling.model_dump(exclude_none=True) if sampling else {}
