"""A hearing: all the calls that one judge makes for one item, as a state machine that others drive (`Proceeding`)."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from services.judging.heard import Heard, ReadingRule, hear_labels, hear_probability, hear_text
from services.judging.opinion import Bench, Opinion, come_to, weigh
from services.judging.pairings import Pairs, Seating, pairings, seatings
from services.judging.policies import Policy
from services.judging.proceeding import MOST_SAMPLES, CallKey, Proceeding
from services.judging.protocol import Family, Message, Showing
from services.judging.reading import before_label, unfinished
from services.judging.runtime import Completion
from services.judging.schedule import EarlyStop, Schedule
from services.judging.weighing import Answer, Rule, Scales
from services.vocabulary import Decide, Flag, Mode, OnConflict, Order, Orders, Outcome


@dataclass(frozen=True, slots=True)
class Comparison:
    """An item as its caller gave it: a context and two or more candidates."""

    context: tuple[Message, ...]
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HearingOptions:
    """How a judge hears an item. `decide` None: the family's own way (`default_decide`).

    `samples` are calls for each order (each candidate, where a pointwise judge grades them); direct mode draws nothing,
    so one is enough there. `early_stop` spares those that the winner of two candidates does not need. `tie_margin` is
    half the width of the band in which there is a tie: around 1/2 in `p_a`, around 0 in score points where scores
    decide, between any two candidates where each is graded alone. `forced_verdict` follows a call without a verdict up
    with a forced one. `decide` and `on_conflict` "soft" follow one with a verdict up, for its probability. `reading`
    "seed" takes the loose rule published with the model. `margin` names how two scores and a ranking become one number.
    `policies` adjust the scores of more than two candidates, in this order. Raises ValueError outside the ranges.
    """

    orders: Orders = Orders.BOTH
    samples: int = 1
    early_stop: EarlyStop = "certain"
    mode: Mode = Mode.REASON
    decide: Decide | None = None
    margin: str = "blended"
    pairs: Pairs = "all"
    forced_verdict: bool = True
    on_conflict: OnConflict = OnConflict.TIE
    tie_margin: float = 0.0
    reading: ReadingRule = "strict"
    principle: str | None = None
    policies: tuple[Policy, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise ValueError(f"samples is between 1 and {MOST_SAMPLES}")
        if isinstance(self.early_stop, float) and not 0.5 < self.early_stop < 1:
            raise ValueError("the confidence of early_stop is above 1/2 and below 1")
        if self.tie_margin < 0:
            raise ValueError("tie_margin is not negative")


def ways_to_decide(protocol: Family) -> tuple[Decide, ...]:
    """How a family's answers can decide, its own way when reasoning first."""
    soft = () if protocol.verdict is None else (Decide.SOFT,)
    if protocol.slots == 1:
        return (Decide.SCORES, *soft)
    return (Decide.VOTE, *soft) if protocol.grades is None else (Decide.SCORES, Decide.VOTE, *soft)


def default_decide(protocol: Family, mode: Mode) -> Decide:
    """How a family decides when nothing else is said: by probabilities in direct mode."""
    return Decide.SOFT if mode is Mode.DIRECT else ways_to_decide(protocol)[0]


@dataclass(slots=True)
class _Trial:
    """A pair, or a candidate graded alone, while it is heard. `seats` by the side of the pair that sits first."""

    seats: dict[Order, Seating]
    schedule: Schedule
    asked: int = 0  # of the schedule's places
    unheard: int = 0  # of those, the samples whose calls have not all been heard
    calls: dict[tuple[Order, int], list[Heard]] = field(default_factory=dict)

    def key(self, order: Order, sample: int, *, forced: bool) -> CallKey:
        seat = self.seats[order]
        return CallKey(seat.match, seat.order, sample, forced)


class Hearing(Proceeding):
    """One judge, one item. See Proceeding."""

    def __init__(
        self, judge: str, item: str, comparison: Comparison, protocol: Family, options: HearingOptions
    ) -> None:
        """`item` is the item's own id, which draws the order when it is random.

        Raises ValueError for what the family cannot do: direct mode without a verdict to force, a way to decide.
        """
        super().__init__()
        if options.mode is Mode.DIRECT and protocol.verdict is None:
            raise ValueError(f"the protocol {protocol.name} has no direct mode: its verdict cannot be forced")
        decide = options.decide or default_decide(protocol, options.mode)
        if decide not in ways_to_decide(protocol):
            raise ValueError(f"the protocol {protocol.name} cannot decide by {decide}")
        self._judge = judge
        self._comparison = comparison
        self._protocol = protocol
        self._options = options
        self._scales = Scales.of(protocol, decide, options.margin)
        self._rule = Rule(self._scales, options.on_conflict, options.tie_margin * self._scales.unit)
        self._trials = list(self._seated(item))
        self._trial_of = {
            (seat.match, seat.order): (trial, side) for trial in self._trials for side, seat in trial.seats.items()
        }
        conflicts = decide is Decide.VOTE and len(self._trials[0].seats) > 1
        self._soft = decide is Decide.SOFT or (conflicts and options.on_conflict is OnConflict.SOFT)
        for trial in self._trials:
            self._opened(self._grant(trial))

    def showing(self, key: CallKey) -> Showing:
        """What this call shows the judge."""
        candidates = self.seating(key).candidates
        texts = tuple(self._comparison.candidates[index] for index in candidates)
        return Showing(self._comparison.context, texts, self._options.principle)

    def seating(self, key: CallKey) -> Seating:
        """Which candidates this call shows."""
        trial, side = self._trial_of[key.match, key.order]
        return trial.seats[side]

    def written_before(self, key: CallKey) -> str:
        """What stands between the prompt and the label of a forced call, the verdict's opening at its end.

        The judge's own text: up to its verdict's label where it has one, else closed and opened for one.
        """
        assert key.forced
        form = self._protocol.verdict
        assert form is not None
        followed = self._followed(key)
        if followed is not None and followed.answered:
            assert followed.reading.span is not None
            return before_label(followed.text, followed.reading.span, form.labels)
        text = "" if followed is None else followed.text
        return unfinished(text, form, thinks=self._protocol.thinks) + form.opening

    def read(self, key: CallKey, completion: Completion) -> Heard:
        """What this call's answer says."""
        if not key.forced:
            return hear_text(self._protocol, completion, self._options.reading)
        assert self._protocol.verdict is not None
        followed = self._followed(key)
        hear = hear_probability if followed is not None and followed.answered else hear_labels
        return hear(self._protocol.verdict, completion)

    def abandon(self) -> None:
        """Ask nothing more: the opinion rests on what was heard."""
        self._open.clear()

    def opinion(self) -> Opinion:
        """What the hearing came to. Raises ValueError before its end."""
        if not self.ended:
            raise ValueError("the hearing has not ended")
        benches = [Bench(trial.seats, trial.calls, trial.schedule.stopped) for trial in self._trials]
        candidates, policies = self._comparison.candidates, self._options.policies
        opinion = weigh(self._judge, len(candidates), benches, self._rule, self._suspicion())
        if opinion.standing is None or not policies:
            return opinion
        even = 0.0 if self._scales.pairwise else self._options.tie_margin  # there the pairs' answers have it
        return replace(opinion, standing=opinion.standing.adjusted_by(policies, candidates, opinion.grades, even))

    def _seated(self, item: str) -> Iterator[_Trial]:
        options, candidates = self._options, len(self._comparison.candidates)

        def trial(seats: dict[Order, Seating], early_stop: EarlyStop) -> _Trial:
            return _Trial(seats, Schedule(tuple(seats), options.samples, self._rule, early_stop))

        if self._protocol.slots == 2:
            # where pairs are ranked together, how far each side is ahead counts, and stopping exaggerates that
            early_stop = options.early_stop if candidates == 2 else "never"
            for pair in seatings(pairings(options.pairs, candidates), options.orders, item):
                yield trial({seat.order: seat for seat in pair}, early_stop)
            return
        alone = [Seating(index, Order.AB, (index,)) for index in range(candidates)]
        if candidates == 2:
            yield trial({Order.AB: alone[0], Order.BA: alone[1]}, options.early_stop)
            return
        for seat in alone:
            yield trial({Order.AB: seat}, "never")

    def _take_down(self, key: CallKey, heard: Heard) -> list[CallKey]:
        trial, side = self._trial_of[key.match, key.order]
        trial.calls.setdefault((side, key.sample), []).append(heard)
        if not key.forced and self._is_followed_up(heard):
            return [trial.key(side, key.sample, forced=True)]
        trial.unheard -= 1
        return [] if trial.unheard else self._grant(trial)

    def _grant(self, trial: _Trial) -> list[CallKey]:
        """The calls of the samples that the schedule wants next."""
        schedule = trial.schedule
        if trial.asked:
            schedule.advance([self._answer(trial, *place) for place in schedule.places[: trial.asked]])
        fresh = schedule.places[trial.asked : schedule.granted]
        trial.asked, trial.unheard = schedule.granted, len(fresh)
        direct = self._options.mode is Mode.DIRECT
        return [trial.key(order, sample, forced=direct) for order, sample in fresh]

    def _answer(self, trial: _Trial, order: Order, sample: int) -> Answer | None:
        heard = come_to(trial.calls[order, sample])
        return self._scales.answer(heard, swapped=order.swapped) if heard.answered else None

    def _is_followed_up(self, heard: Heard) -> bool:
        if self._protocol.verdict is None:
            return False
        if heard.answered:
            return self._soft and heard.reading.span is not None
        return self._options.forced_verdict and heard.outcome in (Outcome.TRUNCATED, Outcome.UNPARSEABLE)

    def _followed(self, key: CallKey) -> Heard | None:
        """The call that a forced one follows; None in direct mode, where it follows none."""
        trial, side = self._trial_of[key.match, key.order]
        calls = trial.calls.get((side, key.sample))
        return calls[0] if calls and self._options.mode is not Mode.DIRECT else None

    def _suspicion(self) -> frozenset[Flag]:
        shown = Showing(self._comparison.context, self._comparison.candidates, self._options.principle)
        suspected = self._protocol.injection_suspected(shown)
        return frozenset({Flag.INJECTION_SUSPECTED}) if suspected else frozenset()
