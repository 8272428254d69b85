"""A report as Markdown that reads well in a terminal too.

Guarantee: pure, and says nothing that the report does not hold. Every rate stands beside its count and denominator;
a caller's names cannot break a table or reach a terminal's controls.
"""

from collections.abc import Iterator, Sequence

from services.contract.reports import Agreement, Interval, Proportion, Report, WinRate
from services.vocabulary import Decide, Mode, Orders

NOTHING = "–"
LONGEST_NAME = 40
ORDERS = {Orders.BOTH: "both orders", Orders.GIVEN: "the given order", Orders.RANDOM: "one random order"}
MODES = {Mode.DIRECT: "direct mode", Mode.REASON: "with reasoning"}
DECIDED_BY = {Decide.SOFT: "soft verdicts", Decide.VOTE: "votes"}


def markdown(report: Report) -> str:
    """The whole report, ending in a newline."""
    sections = (_heading, _win_rates, _labels, _position, _outcomes, _usage, _notes)
    return "\n\n".join(part for section in sections for part in section(report)) + "\n"


def _heading(report: Report) -> Iterator[str]:
    job = report.job
    samples = f", {job.samples} samples an order" if job.samples > 1 else ""
    yield f"# {_name(job.name)} ({job.id})" if job.name else f"# {job.id}"
    yield (
        f"{job.status.value}: {report.items.heard} of {report.items.total} items heard by "
        f"{', '.join(map(_name, job.judges))}, {MODES[job.mode]}, in {ORDERS[job.orders]}{samples}, "
        f"decided by {DECIDED_BY[job.decide]}."
    )


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
    rows = [(f"side {side}", rate) for side, rate in report.sides.items()]
    rows += [(_name(rate.system), rate) for rate in report.systems]
    yield "## Who wins"
    yield _table(head, [_win_rate(name, rate) for name, rate in rows])
    yield "Side A is the candidate given first. A tie counts as half a win. Quote the interval over clusters."


def _win_rate(name: str, rate: WinRate) -> tuple[str, ...]:
    counts = (str(rate.wins), str(rate.ties), str(rate.losses), _percent(rate.rate))
    return (name, *counts, _interval(rate.bootstrap), str(rate.clusters), _interval(rate.t), _interval(rate.wilson))


def _labels(report: Report) -> Iterator[str]:
    labels = report.labels
    if labels is None:
        return
    yield "## Against human labels"
    head = ("answer", "right", "agreement", "95 % (Wilson)", "kappa")
    rows = [("most frequent label, always", *_counted(labels.verdict.base), NOTHING)]
    if labels.orders is not None:
        rows += [
            _agreement("one order, as given", labels.orders.given),
            _agreement("one order, swapped", labels.orders.swapped),
            _agreement("both orders: the verdict", labels.orders.verdict),
        ]
        rest = labels.verdict.raw.n - labels.orders.verdict.raw.n
    else:
        rows.append(_agreement("the verdict", labels.verdict))
        rest = 0
    yield _table(head, rows)
    if rest:
        yield f"The verdict over all {labels.verdict.raw.n} labelled items with one: {_proportion(labels.verdict.raw)}."
    if labels.orders is not None:
        single = (labels.orders.given.raw.count + labels.orders.swapped.raw.count) / 2
        both, n = labels.orders.verdict.raw.count, labels.orders.verdict.raw.n
        difference = f"{abs(both - single):g} {'more' if both > single else 'fewer'}" if both != single else "no more"
        yield (
            f"A single order is right on {single:g} of {n} items on average, the verdict out of both on {both}: "
            f"{difference}."
        )


def _agreement(name: str, agreement: Agreement) -> tuple[str, str, str, str, str]:
    return (name, *_counted(agreement.raw), NOTHING if agreement.kappa is None else f"{agreement.kappa:.2f}")


def _position(report: Report) -> Iterator[str]:
    position = report.position
    kappa = "" if position.order_kappa is None else f" Kappa between the orders: {position.order_kappa:.2f}."
    yield "## Position"
    yield (
        f"Single answers took the first slot: {_proportion(position.first_slot)}; without bias about 50 %.\n"
        f"Both orders gave the same answer: {_proportion(position.consistent)}.{kappa}"
    )


def _outcomes(report: Report) -> Iterator[str]:
    items, answers = report.items, report.answers
    rows = [
        ("failed items", *_counted(items.failed)),
        *((f"  {code.value}", str(count), NOTHING, NOTHING) for code, count in sorted(items.errors.items())),
        ("ties", *_counted(items.ties)),
        ("abstentions", *_counted(items.abstained)),
        ("items with verdicts that disagree in one text", *_counted(items.conflicting)),
        ("items suspected of injection", *_counted(items.injection_suspected)),
        ("samples with an answer", *_counted(answers.valid)),
    ]
    if answers.forced is not None:
        rows.append(("answers that had to be forced", *_counted(answers.forced)))
    yield "## What stands beside it"
    yield _table(("", "count", "rate", "95 % (Wilson)"), rows)


def _usage(report: Report) -> Iterator[str]:
    usage = report.usage
    speed = NOTHING if usage.calls_per_second is None else f"{usage.calls_per_second:.1f} calls/s"
    seconds = "" if usage.seconds is None else f" in {usage.seconds:.1f} s"
    yield "## Cost"
    yield (
        f"{usage.calls:,} calls{seconds}, {speed}. {usage.prompt_tokens:,} prompt tokens "
        f"({_percent(usage.cached.rate)} cached), {usage.completion_tokens:,} completion tokens."
    )


def _notes(report: Report) -> Iterator[str]:
    if report.notes:
        yield "## Notes"
        yield "\n".join(f"- {note.message}" for note in report.notes)


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
