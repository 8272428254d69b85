"""The report of a judgement as Markdown that reads well in a terminal too.

Guarantee: pure, and says nothing that the report does not hold. Every rate stands beside its count and denominator.
"""

from collections.abc import Iterator

from services.contract.reports.judgement import JudgementReport
from services.contract.reports.parts import Agreement, JudgeReport, OrdersCompared
from services.reports.markup import NOTHING, brief, counted, number, percent, plain, table, whole
from services.reports.outcomes import ANSWERED, UNANSWERED
from services.reports.sections import (
    Row,
    cost,
    failures,
    grades,
    heard,
    notes,
    outcomes,
    position,
    samples,
    suspected,
    title,
    tokens,
    way,
    win_rates,
)


def sections(report: JudgementReport) -> Iterator[str]:
    """The whole report, part by part."""
    about = (_position, _outcomes, _cost) if report.panel is None else (_panel, _outcomes, _costs)
    yield from _heading(report)
    yield from _win_rates(report)
    yield from grades(report.judges)
    for section in (_labels, *about):
        yield from section(report)
    yield from notes(report.notes, named=report.panel is not None)


def _heading(report: JudgementReport) -> Iterator[str]:
    beginning = f"{heard(report.job, report.items)} by"
    ways = [f"{plain(judge.name)}, {way(judge)}." for judge in report.job.judges]
    yield title(report.job)
    if report.panel is None:
        yield f"{beginning} {ways[0]}"
    else:
        yield f"{beginning} a panel of {len(ways)} judges:"
        yield "\n".join(f"- {one}" for one in ways)


def _win_rates(report: JudgementReport) -> Iterator[str]:
    sides = [(f"side {side}", rate) for side, rate in report.sides.items() if rate.pairs or not report.systems]
    first = "Side A is the candidate given first." if sides else ""
    yield "## Who wins"
    yield from win_rates([*sides, *((plain(rate.system), rate) for rate in report.systems)], first)


def _labels(report: JudgementReport) -> Iterator[str]:
    labels = report.labels
    if labels is None:
        return
    own = [(plain(judge.name), judge.labels) for judge in report.judges if judge.labels is not None]
    orders = own[0][1].orders if own and report.panel is None else None
    judges = own if report.panel is not None else []
    rows: list[Row] = []
    if labels.verdict.raw.n or labels.best is None:
        rows.append(("most frequent label, always", *counted(labels.verdict.base), NOTHING))
        if orders is not None:
            rows.append(_agreement("one order, as given", orders.given))
            rows.append(_agreement("one order, swapped", orders.swapped))
            rows.append(_agreement("both orders: the verdict", orders.both))
        else:
            rows += [_agreement(name, judge.opinion) for name, judge in judges]
            rows.append(_agreement("the verdict", labels.verdict))
    if labels.best is not None:
        bests = [*((name, judge.best) for name, judge in judges), ("the verdict", labels.best)]
        rows.append(("best of several: most frequent label, always", *counted(labels.best.base), NOTHING))
        rows += [(f"best of several: {name}", *counted(best.raw), NOTHING) for name, best in bests if best is not None]
    yield "## Against human labels"
    yield table(("answer", "right", "agreement", "95 % (Wilson)", "kappa"), rows)
    if orders is not None:
        yield from _recovered(labels.verdict, orders)


def _recovered(verdict: Agreement, orders: OrdersCompared) -> Iterator[str]:
    """What both orders together make better than one."""
    if verdict.raw.n > orders.both.raw.n:
        yield f"The verdict over all {verdict.raw.n} labelled items with one: {whole(verdict.raw)}."
    single = (orders.given.raw.count + orders.swapped.raw.count) / 2
    both, n = orders.both.raw.count, orders.both.raw.n
    difference = f"{abs(both - single):g} {'more' if both > single else 'fewer'}" if both != single else "no more"
    yield (
        f"A single order is right on {single:g} of {n} items on average, the verdict out of both on {both}: "
        f"{difference}."
    )


def _agreement(name: str, agreement: Agreement) -> Row:
    return (name, *counted(agreement.raw), number(agreement.kappa))


def _position(report: JudgementReport) -> Iterator[str]:
    yield "## Position"
    yield position(report.judges[0].position)


def _panel(report: JudgementReport) -> Iterator[str]:
    panel = report.panel
    assert panel is not None
    yield "## The panel"
    yield (
        f"All judges gave the same winner: {whole(panel.unanimous)}.\n"
        f"Two judges differ with a chance of {percent(panel.disagreement)} on average.\n"
        f"Decided without an answer of every judge: {whole(panel.partial)}."
    )
    yield table(
        ("judge", "items answered", "as the panel", "first slot", "orders agree", "stopped early"),
        [_judge(judge) for judge in report.judges],
    )
    yield "Samples by what they came to; only the first two are answers:"
    every = (*ANSWERED, *UNANSWERED)
    yield table(
        ("judge", *(outcome.value for outcome in every), "forced answers"),
        [
            (
                plain(judge.name),
                *(str(judge.answers.outcomes[outcome]) for outcome in every),
                NOTHING if judge.answers.forced is None else brief(judge.answers.forced),
            )
            for judge in report.judges
        ],
    )


def _judge(judge: JudgeReport) -> Row:
    stopped = judge.stopped_early
    early = NOTHING if stopped is None else f"{stopped.certain.count + stopped.confident.count} of {stopped.certain.n}"
    return (
        plain(judge.name),
        brief(judge.answered),
        NOTHING if judge.agrees is None else brief(judge.agrees),
        brief(judge.position.first_slot),
        brief(judge.position.consistent),
        early,
    )


def _outcomes(report: JudgementReport) -> Iterator[str]:
    items = report.items
    yield "## What stands beside it"
    yield outcomes(
        [
            *failures(items),
            ("ties", *counted(items.ties)),
            ("abstentions", *counted(items.abstained)),
            ("items with verdicts that disagree in one text", *counted(items.conflicting)),
            suspected(items),
            *(samples(report.judges[0]) if report.panel is None else ()),
        ]
    )


def _cost(report: JudgementReport) -> Iterator[str]:
    yield "## Cost"
    source = report.job.reread_of
    yield cost(report.usage) if source is None else f"No runtime was asked: what {source} heard was read again."


def _costs(report: JudgementReport) -> Iterator[str]:
    yield from _cost(report)
    if report.job.reread_of is None:
        yield "\n".join(
            f"- {plain(judge.name)}: {judge.usage.calls:,} calls, {tokens(judge.usage)}." for judge in report.judges
        )
