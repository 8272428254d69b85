"""Reading a job's settings, and the items of a JSON body, as they were sent.

Guarantee: nothing is guessed. A body that is not JSON is Malformed; every other fault is listed with its pointer.
Metadata and items are kept as the very text that was sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from services.contract.jobs import (
    JobRequest,
    JobSettings,
    JudgeOptions,
    JudgeSettings,
    Options,
    PanelOptions,
    PanelSettings,
    RereadOptions,
    Sampling,
    SamplingOptions,
)
from services.foundation.errors import Fault, Invalid, Misconfigured, NoItems
from services.foundation.fleet import Fleet, FleetModel
from services.foundation.jsontext import escaped
from services.jobs.body import Member, members_of
from services.jobs.intake import NESTED, Inline
from services.jobs.strictjson import DEEPEST, pointer_to, too_deep
from services.judging.hearing import default_decide, ways_to_decide
from services.judging.pairings import connected, pairings
from services.judging.protocol import JudgeProtocol
from services.judging.registry import protocol
from services.judging.weighing import Scales
from services.vocabulary import Decide, JobKind, Mode, OnConflict, Orders, Priority

LARGEST_METADATA = 16 << 10  # bytes of its JSON text
MOST_FAULTS = 100  # that are listed; all are counted
CODES = {"extra_forbidden": "unknown_field", "missing": "missing_field"}


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to submit, checked against the fleet. Without a `deadline` it gets the default one.

    `slots`: how many candidates each judge is shown at once.
    """

    kind: JobKind
    judges: tuple[str, ...]
    slots: tuple[int, ...]
    settings: JobSettings
    name: str | None
    metadata: str
    callback: str | None
    priority: Priority
    deadline: datetime | None

    @property
    def candidates(self) -> int | None:
        """How many candidates every item must have, where the job lists its pairs; else None."""
        listed = next(iter(self.settings.judges.values())).pairs
        return None if isinstance(listed, str) else 1 + max(map(max, listed))

    def calls_per_item(self, candidates: int) -> int:
        """Calls of one hearing of so many candidates, by the judge with the most; follow-ups are not counted."""
        judges = zip(self.settings.judges.values(), self.slots, strict=True)
        return max(_calls(settings, slots, candidates) for settings, slots in judges)


def _calls(settings: JudgeSettings, slots: int, candidates: int) -> int:
    if slots == 1:
        return candidates * settings.samples
    pairs = settings.pairs if isinstance(settings.pairs, str) else tuple(settings.pairs)
    orders = 2 if settings.orders is Orders.BOTH else 1
    return len(pairings(pairs, candidates)) * orders * settings.samples


def read_job(body: bytes, fleet: Fleet) -> Submission:
    """The job of an upload: a body without items. Raises Malformed, Invalid."""
    members, items = members_of(body)
    if items is not None or "items" in members:
        fault = Fault("unknown_field", "/items", "the items of an upload are a part of their own")
        raise Invalid("the job cannot be accepted", [fault])
    return _submission(members, fleet)


def read_job_with_items(body: bytes, fleet: Fleet) -> tuple[Submission, Inline]:
    """A job that holds its items, faulty ones among them. Raises Malformed, Invalid, NoItems."""
    members, items = members_of(body)
    if items is None:
        given = members.pop("items", None)
        fault = Fault("invalid_value", "/items", "items is a list") if given else MISSING_ITEMS
        raise Invalid("the job has no list of items", [fault])
    submission = _submission(members, fleet)
    if not items.read:
        raise NoItems("the job has no items")
    return submission, items if submission.candidates is None else items.having(submission.candidates)


def check_fleet(fleet: Fleet) -> None:
    """Raises Misconfigured when a model's default options are none."""
    for model in fleet.models.values():
        try:
            JudgeOptions.model_validate(model.options)
        except ValidationError as error:
            raise Misconfigured(f"the options of the model {model.name} are wrong: {error}") from error


def default_mode(model: FleetModel) -> Mode:
    """The mode of a job that names none."""
    return JudgeOptions.model_validate(model.options).mode or Mode.REASON


def resolve(options: Options, model: FleetModel, family: JudgeProtocol) -> JudgeSettings:
    """Every option: the job's own, else the model's default, else the system's."""
    # stopping keeps a winner and exaggerates how far it is ahead, which is what a panel's mean is made of
    averaged = options.panel is not None and options.panel.decide == "mean"
    fallback = JudgeOptions.model_validate(model.options)

    def pick(name: str, default: Any) -> Any:
        for given in (options, fallback):
            if (value := getattr(given, name)) is not None:
                return value
        return default

    sampling = {**model.sampling.model_dump(), **_given(fallback.sampling), **_given(options.sampling)}
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
        sampling=Sampling(**sampling),
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


MISSING_ITEMS = Fault("missing_field", "/items", "a job needs items")


def _submission(members: Mapping[str, Member], fleet: Fleet) -> Submission:
    try:
        request = JobRequest.model_validate({key: member.value for key, member in members.items()})
    except ValidationError as error:
        raise Invalid("the job cannot be accepted", faults_of(error), error.error_count()) from None
    options = request.options or Options()
    metadata, faults = metadata_of(members)
    families: dict[str, JudgeProtocol] = {}
    for place, judge in enumerate(request.judges):
        try:
            families[judge] = family_of(fleet, judge)
        except Misconfigured as error:
            faults.append(Fault("unknown_model", pointer_to("judges", place), error.message))
    settings = {judge: resolve(options, fleet.models[judge], family) for judge, family in families.items()}
    for judge, family in families.items():
        faults += contradictions(judge, settings[judge], family)
    faults += idle_options(options, settings, families)
    if faults:
        raise Invalid("the job cannot be accepted", faults)
    callback = request.callback
    return Submission(
        kind=request.kind,
        judges=tuple(request.judges),
        slots=tuple(family.slots for family in families.values()),
        settings=JobSettings(judges=settings, panel=resolve_panel(options.panel, request.judges)),
        name=request.name,
        metadata=metadata,
        callback=escaped(callback.model_dump(mode="json")) if callback else None,
        priority=Priority[(request.priority or "standard").upper()],
        deadline=request.deadline,
    )


def metadata_of(members: Mapping[str, Member]) -> tuple[str, list[Fault]]:
    """The text of a body's metadata, and what is wrong with it."""
    given = members.get("metadata")
    if given is None or given.value is None:
        return "{}", []
    if len(given.text.encode()) > LARGEST_METADATA:
        return "{}", [Fault("too_large", "/metadata", f"metadata is larger than {LARGEST_METADATA} bytes")]
    if too_deep(given.value, DEEPEST - 1):
        return "{}", [Fault("invalid_value", "/metadata", NESTED)]
    return given.text, []


def family_of(fleet: Fleet, judge: str) -> JudgeProtocol:
    """The family of a judge. Raises Misconfigured: the fleet has no such model, or it cannot be asked."""
    model = fleet.models.get(judge)
    if model is None:
        raise Misconfigured(f"the fleet has no such model; it has {', '.join(sorted(fleet.models))}")
    return protocol(model.protocol, model.protocol_options)


def contradictions(judge: str, settings: JudgeSettings, family: JudgeProtocol) -> Iterator[Fault]:
    """What each option allows and this judge, or all of them together, do not."""

    def fault(option: str, message: str) -> Fault:
        return Fault("invalid_value", pointer_to("options", option), f"{judge}: {message}")

    if settings.mode is Mode.DIRECT:
        if family.verdict is None:
            yield fault("mode", "its verdict cannot be forced, so it has no direct mode")
            return
        if settings.samples > 1:
            yield fault("samples", "direct mode draws nothing: every sample would be the same")
    elif settings.samples > 1 and temperature_of(settings, family) == 0:
        yield fault("samples", "at temperature 0 every sample would be the same")
    if not isinstance(settings.pairs, str) and not connected(settings.pairs, 1 + max(map(max, settings.pairs))):
        yield fault("pairs", "they do not tie the candidates 0, 1, 2 ... together")
    if settings.decide not in (ways := ways_to_decide(family)):
        yield fault("decide", f"it decides by {' or '.join(ways)}")
    elif settings.tie_margin * Scales.of(family, settings.decide, settings.margin).unit >= 0.5:
        yield fault("tie_margin", "with so wide a margin everything is a tie")


def temperature_of(settings: JudgeSettings, family: JudgeProtocol) -> float:
    """The temperature at which a judge writes."""
    asked = settings.sampling.temperature
    return family.sampling.temperature if asked is None else asked


def idle_options(
    options: Options | RereadOptions, settings: Mapping[str, JudgeSettings], families: Mapping[str, JudgeProtocol]
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
            yield Fault("invalid_value", pointer_to("options", option), why)
    for judge in (options.panel and options.panel.weights) or ():
        if judge not in settings:
            yield Fault("invalid_value", pointer_to("options", "panel", "weights", judge), "no judge of this job")


def faults_of(error: ValidationError) -> list[Fault]:
    return [
        Fault(
            CODES.get(wrong["type"], "invalid_value"),
            pointer_to(*wrong["loc"]),
            wrong["msg"].removeprefix("Value error, "),
        )
        for wrong in error.errors(include_url=False, include_context=False, include_input=False)[:MOST_FAULTS]
    ]


def _given(sampling: SamplingOptions | None) -> dict[str, Any]:
    return sampling.model_dump(exclude_none=True) if sampling else {}
