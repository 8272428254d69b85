"""A report as Markdown that reads well in a terminal too.

Guarantee: pure, and says nothing that the report does not hold. Every rate stands beside its count and denominator;
a caller's names cannot break a table or reach a terminal's controls.
"""

from collections.abc import Iterator, Sequence

from services.contract.jobs import StopAt
from services.contract.reports import (
    Agreement,
    Interval,
    JudgeReport,
    OrdersCompared,
    Proportion,
    Report,
    ReportedJudge,
    Spent,
    WinRate,
)
from services.vocabulary import Decide, Mode, Orders, Outcome

NOTHING = "–"
LONGEST_NAME = 40
ORDERS = {Orders.BOTH: "both orders", Orders.GIVEN: "the given order", Orders.RANDOM: "one random order"}
MODES = {Mode.DIRECT: "direct mode", Mode.REASON: "with reasoning"}
DECIDED_BY = {Decide.SOFT: "soft verdicts", Decide.VOTE: "votes", Decide.SCORES: "scores"}
UNANSWERED = [outcome for outcome in Outcome if outcome not in (Outcome.DECIDED, Outcome.TIE)]


def markdown(report: Report) -> str:
    """The whole report, ending in a newline."""
    about = (_position, _outcomes, _cost) if report.panel is None else (_panel, _outcomes, _costs)
    sections = (_heading, _win_rates, _grades, _labels, *about, _notes)
    return "\n\n".join(part for section in sections for part in section(report)) + "\n"


def _heading(report: Report) -> Iterator[str]:
    job = report.job
    heard = f"{job.status.value}: {report.items.heard} of {report.items.total} items heard by"
    ways = [f"{_name(judge.name)}, {_way(judge)}." for judge in job.judges]
    yield f"# {_name(job.name)} ({job.id})" if job.name else f"# {job.id}"
    if report.panel is None:
        yield f"{heard} {ways[0]}"
    else:
        yield f"{heard} a panel of {len(ways)} judges:"
        yield "\n".join(f"- {way}" for way in ways)


def _way(judge: ReportedJudge) -> str:
    """How a judge hears."""
    most = "" if judge.early_stop == "never" else "up to "
    samples = f", {most}{judge.samples} samples an order" if judge.samples > 1 else ""
    if isinstance(judge.early_stop, StopAt) and samples:
        samples += f" until {100 * judge.early_stop.confidence:g} % sure"
    return f"{MODES[judge.mode]}, in {ORDERS[judge.orders]}{samples}, decided by {DECIDED_BY[judge.decide]}"


def _win_rates(report: Report) -> Iterator[str]:
    head = (
        "",
        "won",
        "tied",
        "lost",
        "win rate",
        "95 % over clusters",
        "clusters",
        "t over clusters",
        "Wilson (screening)",
    )
    sides = [_win_rate(f"side {side}", rate) for side, rate in report.sides.items() if rate.pairs or not report.systems]
    first = "Side A is the candidate given first. " if sides else ""
    yield "## Who wins"
    yield _table(head, sides + [_win_rate(_name(rate.system), rate) for rate in report.systems])
    yield f"{first}A tie counts as half a win. Quote the interval over clusters."


def _win_rate(name: str, rate: WinRate) -> tuple[str, ...]:
    counts = (str(rate.wins), str(rate.ties), str(rate.losses), _percent(rate.rate))
    return (name, *counts, _interval(rate.bootstrap), str(rate.clusters), _interval(rate.t), _interval(rate.wilson))


def _grades(report: Report) -> Iterator[str]:
    rows = [
        (_name(grade.system), _name(judge.name), f"{grade.mean:.2f}", str(grade.candidates))
        for judge in report.judges
        for grade in judge.grades
    ]
    if rows:
        yield "## Grades"
        yield _table(("", "judge", "mean grade", "candidates"), rows)


def _labels(report: Report) -> Iterator[str]:
    labels = report.labels
    if labels is None:
        return
    own = [(_name(judge.name), judge.labels) for judge in report.judges if judge.labels is not None]
    orders = own[0][1].orders if own and report.panel is None else None
    judges = own if report.panel is not None else []
    rows: list[tuple[str, ...]] = []
    if labels.verdict.raw.n or labels.best is None:
        rows.append(("most frequent label, always", *_counted(labels.verdict.base), NOTHING))
        if orders is not None:
            rows.append(_agreement("one order, as given", orders.given))
            rows.append(_agreement("one order, swapped", orders.swapped))
            rows.append(_agreement("both orders: the verdict", orders.both))
        else:
            rows += [_agreement(name, judge.opinion) for name, judge in judges]
            rows.append(_agreement("the verdict", labels.verdict))
    if labels.best is not None:
        bests = [*((name, judge.best) for name, judge in judges), ("the verdict", labels.best)]
        rows.append(("best of several: most frequent label, always", *_counted(labels.best.base), NOTHING))
        rows += [(f"best of several: {name}", *_counted(best.raw), NOTHING) for name, best in bests if best is not None]
    yield "## Against human labels"
    yield _table(("answer", "right", "agreement", "95 % (Wilson)", "kappa"), rows)
    if orders is not None:
        yield from _recovered(labels.verdict, orders)


def _recovered(verdict: Agreement, orders: OrdersCompared) -> Iterator[str]:
    """What both orders together make better than one."""
    if verdict.raw.n > orders.both.raw.n:
        yield f"The verdict over all {verdict.raw.n} labelled items with one: {_proportion(verdict.raw)}."
    single = (orders.given.raw.count + orders.swapped.raw.count) / 2
    both, n = orders.both.raw.count, orders.both.raw.n
    difference = f"{abs(both - single):g} {'more' if both > single else 'fewer'}" if both != single else "no more"
    yield (
        f"A single order is right on {single:g} of {n} items on average, the verdict out of both on {both}: "
        f"{difference}."
    )


def _agreement(name: str, agreement: Agreement) -> tuple[str, str, str, str, str]:
    return (name, *_counted(agreement.raw), NOTHING if agreement.kappa is None else f"{agreement.kappa:.2f}")


def _position(report: Report) -> Iterator[str]:
    position = report.judges[0].position
    kappa = "" if position.order_kappa is None else f" Kappa between the orders: {position.order_kappa:.2f}."
    yield "## Position"
    yield (
        f"Single answers took the first slot: {_proportion(position.first_slot)}; without bias about 50 %.\n"
        f"Both orders gave the same answer: {_proportion(position.consistent)}.{kappa}"
    )


def _panel(report: Report) -> Iterator[str]:
    panel = report.panel
    assert panel is not None
    differ = NOTHING if panel.disagreement is None else _percent(panel.disagreement)
    yield "## The panel"
    yield (
        f"All judges gave the same winner: {_proportion(panel.unanimous)}.\n"
        f"Two judges differ with a chance of {differ} on average.\n"
        f"Decided without an answer of every judge: {_proportion(panel.partial)}."
    )
    yield _table(
        ("judge", "items answered", "as the panel", "first slot", "orders agree", "stopped early"),
        [_judge(judge) for judge in report.judges],
    )
    yield "Samples by what they came to; only the first two are answers:"
    outcomes = (Outcome.DECIDED, Outcome.TIE, *UNANSWERED)
    yield _table(
        ("judge", *(outcome.value for outcome in outcomes), "forced answers"),
        [
            (
                _name(judge.name),
                *(str(judge.answers.outcomes[outcome]) for outcome in outcomes),
                NOTHING if judge.answers.forced is None else _brief(judge.answers.forced),
            )
            for judge in report.judges
        ],
    )


def _judge(judge: JudgeReport) -> tuple[str, ...]:
    stopped = judge.stopped_early
    early = NOTHING if stopped is None else f"{stopped.certain.count + stopped.confident.count} of {stopped.certain.n}"
    return (
        _name(judge.name),
        _brief(judge.answered),
        NOTHING if judge.agrees is None else _brief(judge.agrees),
        _brief(judge.position.first_slot),
        _brief(judge.position.consistent),
        early,
    )


def _outcomes(report: Report) -> Iterator[str]:
    items = report.items
    rows: list[tuple[str, ...]] = [
        ("failed items", *_counted(items.failed)),
        *((f"  {code.value}", str(count), NOTHING, NOTHING) for code, count in sorted(items.errors.items())),
        ("ties", *_counted(items.ties)),
        ("abstentions", *_counted(items.abstained)),
        ("items with verdicts that disagree in one text", *_counted(items.conflicting)),
        ("items suspected of injection", *_counted(items.injection_suspected)),
    ]
    if report.panel is None:
        rows += _samples(report.judges[0])
    yield "## What stands beside it"
    yield _table(("", "count", "rate", "95 % (Wilson)"), rows)


def _samples(judge: JudgeReport) -> Iterator[tuple[str, ...]]:
    """What became of the samples of the only judge."""
    answers, stopped = judge.answers, judge.stopped_early
    yield ("samples with an answer", *_counted(answers.valid))
    for outcome in UNANSWERED:
        if count := answers.outcomes[outcome]:
            yield (f"  without: {outcome.value}", str(count), NOTHING, NOTHING)
    if answers.forced is not None:
        yield ("answers that had to be forced", *_counted(answers.forced))
    if stopped is not None:
        yield ("items settled before the last sample", *_counted(stopped.certain))
        yield ("items stopped by the sequential test", *_counted(stopped.confident))


def _cost(report: Report) -> Iterator[str]:
    yield "## Cost"
    if report.job.reread_of is not None:
        yield f"No runtime was asked: what {report.job.reread_of} heard was read again."
        return
    usage = report.usage
    speed = NOTHING if usage.calls_per_second is None else f"{usage.calls_per_second:.1f} calls/s"
    seconds = "" if usage.seconds is None else f" in {usage.seconds:.1f} s"
    yield f"{usage.calls:,} calls{seconds}, {speed}. {_tokens(usage)}."


def _costs(report: Report) -> Iterator[str]:
    yield from _cost(report)
    if report.job.reread_of is None:
        yield "\n".join(
            f"- {_name(judge.name)}: {judge.usage.calls:,} calls, {_tokens(judge.usage)}." for judge in report.judges
        )


def _tokens(usage: Spent) -> str:
    return (
        f"{usage.prompt_tokens:,} prompt tokens ({_percent(usage.cached.rate)} cached), "
        f"{usage.completion_tokens:,} completion tokens"
    )


def _notes(report: Report) -> Iterator[str]:
    if report.notes:
        yield "## Notes"
        about = {note.judge: f"{_name(note.judge)}: " if note.judge and report.panel else "" for note in report.notes}
        yield "\n".join(f"- {about[note.judge]}{note.message}" for note in report.notes)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with its columns aligned: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    rule = [":" + "-" * (widths[0] - 1 or 1), *("-" * (width - 1 or 1) + ":" for width in widths[1:])]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        return f"| {' | '.join(cells)} |"

    return "\n".join([line(head), line(rule), *map(line, rows)])


def _counted(proportion: Proportion) -> tuple[str, str, str]:
    return f"{proportion.count} of {proportion.n}", _percent(proportion.rate), _interval(proportion.wilson)


def _brief(proportion: Proportion) -> str:
    return f"{proportion.count} of {proportion.n} ({_percent(proportion.rate)})"


def _proportion(proportion: Proportion) -> str:
    count, rate, interval = _counted(proportion)
    return f"{rate} ({count}, 95 % {interval})"


def _percent(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate:.1%}".replace("%", " %")


def _interval(interval: Interval | None) -> str:
    return NOTHING if interval is None else f"{100 * interval.low:.1f} to {100 * interval.high:.1f}"


def _name(text: str) -> str:
    """A caller's name on one line, cut, and with nothing in it that Markdown or a terminal would act on."""
    line = "".join(character if character.isprintable() else " " for character in text)
    cut = line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1] + "…"
    return "".join(f"\\{character}" if character in "\\|`*_[]<>#" else character for character in cut)
