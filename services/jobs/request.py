"""Reading a job's settings, and the items of a JSON body, as they were sent.

Guarantee: nothing is guessed. A body that is not JSON is Malformed; every other fault is listed with its pointer.
Metadata and items are kept as the very text that was sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic import ValidationError

from services.contract.jobs import KINDS, Judgement, Reappraisal, Scoring
from services.contract.options import (
    CommitteeSettings,
    JobSettings,
    JudgeSettings,
    Options,
    ReappraisalOptions,
    ReappraisalSettings,
    Request,
    ScoringSettings,
    Settings,
)
from services.foundation.errors import Fault, Invalid, NoItems
from services.foundation.fleet import Fleet
from services.foundation.jsontext import escaped
from services.jobs.body import Member, members_of
from services.jobs.committees import anchors_of, settle_committee
from services.jobs.intake import Inline
from services.jobs.items import NESTED, Comparisons, Responses, Scenarios, Shape
from services.jobs.options import (
    ALIKE,
    check_defaults,
    contradictions,
    draws_nothing,
    find_family,
    idle_options,
    resolve,
    resolve_panel,
    resolve_sampling,
)
from services.jobs.stages import Calls
from services.jobs.strictjson import DEEPEST, pointer_to, too_deep
from services.judging.pairings import Pairs, pairings
from services.judging.protocol import Family
from services.reappraisal.anchors import AnchorSet
from services.vocabulary import JobKind, Orders, Priority, Stage, Task

LARGEST_METADATA = 16 << 10  # bytes of its JSON text
MOST_FAULTS = 100  # that are listed; all are counted
CODES = {"extra_forbidden": "unknown_field", "missing": "missing_field"}
GATE_RETRIES = 2
MISSING_ITEMS = Fault("missing_field", "/items", "a job needs items")
REFUSED = "the job cannot be accepted"

Asked = TypeVar("Asked", bound=Request)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a job asks for, by its kind: checked against the fleet, every option resolved.

    `judges` are those whose opinions it collects, `shape` its items', `anchors` what its committee normalises by.
    `slots`: how many texts each of its judges is shown at once.
    """

    judges: tuple[str, ...]
    settings: Settings
    shape: Shape
    slots: Mapping[str, int]
    anchors: AnchorSet | None = None

    def calls_per_item(self, texts: int) -> Calls:
        """The most calls of an item with so many texts to compare; follow-ups are not counted."""
        match self.settings:
            case JobSettings(judges=judges):
                return {Stage.HEAR: self._hearings(judges, texts, None)}
            case ScoringSettings(committee=committee):
                return {Stage.SCORE: _scoring_calls(committee, 1)}
            case ReappraisalSettings(model=writer, candidates=written, gate_retries=retries) as settings:
                against = tuple((0, other) for other in range(1, texts))
                return {
                    Stage.REAPPRAISE: {writer: written * (1 + retries)},
                    Stage.SCORE: {} if settings.committee is None else _scoring_calls(settings.committee, written),
                    Stage.COMPARE: self._hearings(settings.judges, texts, against),
                }

    def _hearings(self, judges: Mapping[str, JudgeSettings], texts: int, against: Pairs | None) -> dict[str, int]:
        return {name: _hearing(judge, self.slots[name], texts, against) for name, judge in judges.items()}


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to submit. Without a `deadline` it gets the default one."""

    kind: JobKind
    terms: Terms
    name: str | None
    metadata: str
    callback: str | None
    priority: Priority
    deadline: datetime | None


def _hearing(settings: JudgeSettings, slots: int, candidates: int, against: Pairs | None) -> int:
    """The calls of one hearing of so many candidates, of the pairs `against` each other or of those of the settings."""
    if slots == 1:
        return candidates * settings.samples
    listed = settings.pairs if isinstance(settings.pairs, str) else tuple(settings.pairs)
    orders = 2 if settings.orders is Orders.BOTH else 1
    return len(pairings(listed if against is None else against, candidates)) * orders * settings.samples


def _scoring_calls(committee: CommitteeSettings, texts: int) -> dict[str, int]:
    """The calls by which each model of a committee scores so many texts."""
    judges = committee.judges
    return {model: texts * (judges[model].samples if model in judges else 1) for model in committee.models}


def read_job(body: bytes, fleet: Fleet) -> Submission:
    """The job of an upload: a body without items. Raises Malformed, Invalid."""
    members, items = members_of(body)
    if items is not None or "items" in members:
        raise Invalid(REFUSED, [Fault("unknown_field", "/items", "the items of an upload are a part of their own")])
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
        raise NoItems
    return submission, items.fitting(submission.terms.shape)


def check_fleet(fleet: Fleet) -> None:
    """Raises Misconfigured when a model's default options are none, or a committee cannot score."""
    for model in fleet.models.values():
        check_defaults(model)
    for committee in fleet.committees.values():
        settle_committee(fleet, committee, anchors_of(committee))


def _submission(members: Mapping[str, Member], fleet: Fleet) -> Submission:
    request = _request({key: member.value for key, member in members.items()})
    metadata, faults = metadata_of(members)
    match request:
        case Judgement():
            terms = _judgement(request, fleet, faults)
        case Reappraisal():
            terms = _reappraisal(request, fleet, faults)
        case Scoring():
            terms = _scoring(request, fleet, faults)
    if terms is None or faults:
        raise Invalid(REFUSED, faults)
    callback = request.callback
    return Submission(
        kind=request.kind,
        terms=terms,
        name=request.name,
        metadata=metadata,
        callback=escaped(callback.model_dump(mode="json")) if callback else None,
        priority=Priority[(request.priority or "standard").upper()],
        deadline=request.deadline,
    )


def _request(body: Mapping[str, Any]) -> Judgement | Reappraisal | Scoring:
    kind = next((kind for kind in JobKind if kind == body.get("kind")), None)
    if kind is None:  # what else is wrong depends on it
        code = "invalid_value" if "kind" in body else "missing_field"
        raise Invalid(REFUSED, [Fault(code, "/kind", f"kind is {', '.join(JobKind)}")])
    try:
        return KINDS[kind].model_validate(body)
    except ValidationError as error:
        raise Invalid(REFUSED, faults_of(error), error.error_count()) from None


def _judgement(request: Judgement, fleet: Fleet, faults: list[Fault]) -> Terms | None:
    options = request.options or Options()
    families: dict[str, Family] = {}
    for place, judge in enumerate(request.judges):
        family, wrong = find_family(fleet, judge, Task.JUDGE, pointer_to("judges", place))
        faults += wrong
        if family is not None:
            families[judge] = family
    settings = {judge: resolve(options, fleet.models[judge], family) for judge, family in families.items()}
    for judge, family in families.items():
        faults += contradictions(judge, settings[judge], family)
    faults += idle_options(options, settings, families)
    if len(families) < len(request.judges):
        return None
    listed = next(iter(settings.values())).pairs
    return Terms(
        judges=tuple(request.judges),
        settings=JobSettings(judges=settings, panel=resolve_panel(options.panel, request.judges)),
        shape=Comparisons(None if isinstance(listed, str) else 1 + max(map(max, listed))),
        slots={judge: family.slots for judge, family in families.items()},
    )


def _reappraisal(request: Reappraisal, fleet: Fleet, faults: list[Fault]) -> Terms | None:
    options = request.options or ReappraisalOptions()
    family, wrong = find_family(fleet, request.model, Task.WRITE, "/model")
    faults += wrong
    committee, anchors = _committee(fleet, options.committee, pointer_to("options", "committee"), faults)
    judges, slots = _comparing(options, fleet, faults)
    if options.selected_on is not None and options.pool is None:
        message = "without the pool of these scenarios nothing is known of what was selected on it"
        faults.append(Fault("invalid_value", pointer_to("options", "selected_on"), message))
    if family is None:
        return None
    sampling = resolve_sampling(fleet.models[request.model], family, options.sampling)
    greedy = draws_nothing(sampling, family)
    alike = ALIKE.format("text")
    if greedy and (options.candidates or 1) > 1:
        faults.append(Fault("invalid_value", pointer_to("options", "candidates"), alike))
    if greedy and options.gate_retries:
        faults.append(Fault("invalid_value", pointer_to("options", "gate_retries"), alike))
    if committee is not None and committee.normalise == "group" and (options.candidates or 1) == 1:
        message = "the committee normalises within an item's candidates, so there must be several"
        faults.append(Fault("invalid_value", pointer_to("options", "candidates"), message))
    retries = (0 if greedy else GATE_RETRIES) if options.gate_retries is None else options.gate_retries
    return Terms(
        judges=tuple(judges),
        settings=ReappraisalSettings(
            model=request.model,
            candidates=options.candidates or 1,
            gate_retries=retries,
            sampling=sampling,
            committee=committee,
            compare=options.compare,
            judges=judges,
            pool=options.pool,
            selected_on=options.selected_on or [],
        ),
        shape=Scenarios(compared=options.compare is not None),
        slots=slots,
        anchors=anchors,
    )


def _comparing(
    options: ReappraisalOptions, fleet: Fleet, faults: list[Fault]
) -> tuple[dict[str, JudgeSettings], dict[str, int]]:
    """How the judge hears that compares, and how many texts it is shown at once; nothing where none does."""
    place = ("options", "compare_options")
    given = options.compare_options
    if options.compare is None:
        if given is not None:
            faults.append(Fault("invalid_value", pointer_to(*place), "no judge compares"))
        return {}, {}
    family, wrong = find_family(fleet, options.compare, Task.JUDGE, pointer_to("options", "compare"))
    faults += wrong
    if family is None:
        return {}, {}
    wanted = Options() if given is None else Options.model_validate(given.model_dump(exclude_none=True))
    settings = {options.compare: resolve(wanted, fleet.models[options.compare], family)}
    faults += contradictions(options.compare, settings[options.compare], family, place)
    faults += idle_options(wanted, settings, {options.compare: family}, place)
    return settings, {options.compare: family.slots}


def _scoring(request: Scoring, fleet: Fleet, faults: list[Fault]) -> Terms | None:
    committee, anchors = _committee(fleet, request.committee, "/committee", faults)
    if committee is None:
        return None
    if anchors is None:
        message = "it normalises within the candidates of an item, and here an item has but one text"
        faults.append(Fault("unsuitable_committee", "/committee", message))
    return Terms((), ScoringSettings(committee=committee), Responses(), {}, anchors)


def _committee(
    fleet: Fleet, name: str | None, place: str, faults: list[Fault]
) -> tuple[CommitteeSettings | None, AnchorSet | None]:
    if name is None:
        return None, None
    if name not in fleet.committees:
        there = ", ".join(sorted(fleet.committees)) or "none"
        faults.append(Fault("unknown_committee", place, f"the fleet has no such committee; it has {there}"))
        return None, None
    anchors = anchors_of(fleet.committees[name])
    return settle_committee(fleet, fleet.committees[name], anchors), anchors


def read_of_job(body: bytes, shape: type[Asked], refused: str) -> tuple[Asked, Mapping[str, Member]]:
    """A request about a job that is there, and the members of its body; it sends no items. No body is an empty one.

    Raises Malformed, Invalid (`refused`).
    """
    members, items = members_of(body or b"{}")
    if items is not None:
        raise Invalid(refused, [Fault("unknown_field", "/items", "the items are those of the job that is there")])
    try:
        return shape.model_validate({key: member.value for key, member in members.items()}), members
    except ValidationError as error:
        raise Invalid(refused, faults_of(error), error.error_count()) from None


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


def faults_of(error: ValidationError) -> list[Fault]:
    return [
        Fault(
            CODES.get(wrong["type"], "invalid_value"),
            pointer_to(*wrong["loc"]),
            wrong["msg"].removeprefix("Value error, "),
        )
        for wrong in error.errors(include_url=False, include_context=False, include_input=False)[:MOST_FAULTS]
    ]
