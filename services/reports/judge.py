"""One judge's part of a report: what its own opinions show.

Guarantee: pure, and keeps counts and sums alone. A sample without an answer is counted by what happened to it, and
in no rate of answers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from services.contract.reports import parts as wire
from services.judging.opinion import Opinion
from services.reports.item import ItemRow
from services.reports.labels import ANSWERS, Labelled, Table, agreed, empty_table
from services.reports.outcomes import ANSWERED, UNANSWERED
from services.reports.rates import holds, share, spent
from services.stats.position import position
from services.vocabulary import Decide, Mode, Order, Orders, Outcome, Winner


@dataclass(slots=True)
class JudgeTally:
    """What one pass keeps of one judge's opinions."""

    counts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    orders: Table = field(default_factory=empty_table)  # of pairs: the answer as given by the one swapped
    labelled: Labelled = field(default_factory=Labelled)
    compared: dict[str, Table] = field(
        default_factory=lambda: {"given": empty_table(), "swapped": empty_table(), "both": empty_table()}
    )  # each by label, over the same items
    points: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # by system: its grades' sum
    graded: Counter[str] = field(default_factory=Counter)  # and how many they are

    def add(self, row: ItemRow, opinion: Opinion) -> None:
        """Count the opinion on one item."""
        winner = opinion.winner if opinion.standing is None else opinion.standing.winner
        decided = winner is not None and row.winner is not None
        self.outcomes.update(opinion.outcomes)
        self.counts.update(
            answered=opinion.error is None,
            compared=decided,
            agrees=decided and winner == row.winner,
            pairs=row.is_pair,
            certain=opinion.stopped == "certain",
            confident=opinion.stopped == "confident",
            valid=opinion.valid,
            samples=opinion.valid + opinion.invalid,
            forced=opinion.forced,
            without_p=opinion.without_p,
            first_slot=opinion.first_slot,
        )
        if row.calls:  # a verdict without calls was read from those of another job, which bears their cost
            self.counts.update(
                calls=opinion.calls,
                prompt_tokens=opinion.prompt_tokens,
                cached_tokens=opinion.cached_tokens,
                completion_tokens=opinion.completion_tokens,
            )
        orders = [self._add_votes(votes) for votes in [pair.votes for pair in opinion.pairs] or [opinion.votes]]
        self.labelled.add(row, winner)
        if isinstance(row.label, Winner) and opinion.winner is not None:
            self._compare(*orders[0], opinion.winner, row.label)
        # where an order has no answer, grades of the other one alone lean to a slot
        grades = opinion.grades if opinion.error is None else None
        for system, grade in zip(row.systems, grades or (), strict=False):
            if system is not None and grade is not None:
                self.points[system] += grade
                self.graded[system] += 1

    def _add_votes(self, votes: Mapping[Order, Mapping[Winner, int]]) -> tuple[int | None, int | None]:
        """Count the hard answers on one pair. Returns what the given and the swapped order say, as indices."""
        self.counts["sided"] += sum(sides.get(side, 0) for sides in votes.values() for side in (Winner.A, Winner.B))
        given, swapped = (_hard_answer(votes.get(order, {})) for order in (Order.AB, Order.BA))
        if given is not None and swapped is not None:
            self.orders[given, swapped] += 1
        return given, swapped

    def _compare(self, given: int | None, swapped: int | None, winner: Winner, label: Winner) -> None:
        """Count whether either order alone, and both together, say what the label says."""
        if given is None or swapped is None:
            return
        for name, answer in (("given", given), ("swapped", swapped), ("both", ANSWERS.index(winner))):
            self.compared[name][answer, ANSWERS.index(label)] += 1

    def report(self, judge: wire.ReportedJudge, heard: int, *, alone: bool) -> wire.JudgeReport:
        """The judge's part, out of what was counted. `heard`: the items that the panel heard."""
        n = self.counts
        return wire.JudgeReport(
            name=judge.name,
            answered=share(n["answered"], heard),
            agrees=None if alone else share(n["agrees"], n["compared"]),
            labels=self._labels() if self.labelled.counts["items"] else None,
            position=wire.Position.model_validate(position(n["first_slot"], n["sided"], self.orders)),
            answers=wire.Answers(
                valid=share(n["valid"], n["samples"]),
                forced=None if judge.mode is Mode.DIRECT else share(n["forced"], n["valid"]),
                outcomes={outcome: self.outcomes[outcome] for outcome in (*ANSWERED, *UNANSWERED)},
            ),
            stopped_early=self._stopped_early() if judge.samples > 1 else None,
            grades=self._grades(),
            usage=spent(n),
        )

    def _stopped_early(self) -> wire.StoppedEarly:
        n = self.counts
        return wire.StoppedEarly(certain=share(n["certain"], n["pairs"]), confident=share(n["confident"], n["pairs"]))

    def _grades(self) -> tuple[wire.SystemGrade, ...]:
        """The mean grade of each system, best first."""
        grades = [
            wire.SystemGrade(system=system, mean=self.points[system] / candidates, candidates=candidates)
            for system, candidates in self.graded.items()
        ]
        return tuple(sorted(grades, key=lambda grade: (-grade.mean, grade.system)))

    def _labels(self) -> wire.JudgeLabels:
        compared = {name: agreed(table) for name, table in self.compared.items()}
        return wire.JudgeLabels(
            opinion=agreed(self.labelled.table),
            orders=wire.OrdersCompared(**compared) if self.compared["both"].any() else None,
            best=self.labelled.best,
        )

    def notes(self, judge: wire.ReportedJudge, report: wire.JudgeReport) -> Iterator[wire.Note]:
        """What a reader of the judge's figures must know."""
        first_slot = report.position.first_slot
        if judge.orders is Orders.GIVEN and first_slot.n:
            yield wire.Note(
                code="one_order",
                judge=judge.name,
                message="Heard in the given order only: position bias cannot be told from preference.",
            )
        elif first_slot.rate is not None and not holds(first_slot.wilson, 0.5):
            slot = "first" if first_slot.rate > 0.5 else "second"
            yield wire.Note(
                code="position_bias",
                judge=judge.name,
                message=f"Single answers lean to the {slot} slot, whatever stands in it.",
            )
        if judge.decide is Decide.SOFT and (without := self.counts["without_p"]):
            yield wire.Note(
                code="without_probability",
                judge=judge.name,
                message=f"{without} of {self.counts['valid']} answers have no probability: they count as their votes.",
            )


def _hard_answer(votes: Mapping[Winner, int]) -> int | None:
    """What one order's votes say, as an index of `ANSWERS`: the side with more, else a tie; None without votes."""
    if not any(votes.values()):
        return None
    lead = votes.get(Winner.A, 0) - votes.get(Winner.B, 0)
    return ANSWERS.index(Winner.A if lead > 0 else Winner.B if lead < 0 else Winner.TIE)
