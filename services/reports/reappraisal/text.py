"""The report of a reappraisal job as Markdown that reads well in a terminal too.

Guarantee: pure, and says nothing that the report does not hold. Every rate stands beside its count and denominator.
"""

from collections.abc import Iterator

from services.contract.reports.reappraisal import ComparisonReport, ReappraisalReport
from services.reports import committee_text
from services.reports.markup import NOTHING, counted, number, plain, table, whole
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
    system,
    title,
    way,
    win_rates,
)


def sections(report: ReappraisalReport) -> Iterator[str]:
    """The whole report, part by part."""
    yield from _heading(report)
    if report.comparison is not None:
        yield from _against_baselines(report.comparison)
    yield from _gate(report)
    yield from _committee(report)
    if report.comparison is not None:
        yield "## Position"
        yield position(report.comparison.judge.position)
    yield "## What stands beside it"
    beside = [] if report.comparison is None else _compared(report.comparison)
    yield outcomes([*failures(report.items), suspected(report.items), *beside])
    yield "## Cost"
    yield cost(report.usage)
    yield from notes(report.notes, named=False)


def _heading(report: ReappraisalReport) -> Iterator[str]:
    job = report.job
    texts = "1 text" if job.candidates == 1 else f"{job.candidates} texts"
    tries = f", each in at most {1 + job.gate_retries} attempts" if job.gate_retries else ""
    chooses = (
        "the first that passes the gate stands"
        if job.committee is None
        else f"the committee {plain(job.committee)} chooses"
    )
    compares = "" if job.compare is None else f"\nCompared by {plain(job.compare.name)}, {way(job.compare)}."
    selected = ", ".join(map(plain, job.selected_on)) or "none that the job names"
    yield title(job)
    yield (f"{heard(job, report.items)}. {plain(job.model)} writes {texts} an item{tries}; {chooses}.{compares}")
    yield (
        f"Pool of the scenarios: {NOTHING if job.pool is None else plain(job.pool)}. "
        f"Pools that what writes or chooses was selected on: {selected}."
    )


def _against_baselines(compared: ComparisonReport) -> Iterator[str]:
    rates = [(system(rate.system), rate) for rate in compared.baselines]
    yield "## Against the baselines"
    yield from win_rates([("all baselines", compared.overall), *rates], "A win is the chosen text's.")
    yield from grades([compared.judge])


def _gate(report: ReappraisalReport) -> Iterator[str]:
    gate = report.gate
    came = [(f"  {outcome.value}", str(count)) for outcome, count in gate.outcomes.items() if count]
    faults = ", ".join(f"{count} {outcome.value}" for outcome, count in gate.unwritten.items() if count)
    yield "## The gate"
    yield (
        f"Texts that passed: {whole(gate.accepted)}. Beyond a candidate's first attempt: {whole(gate.repeated)}.\n"
        f"Items without a text that passed: {whole(gate.none_passed)}.\n"
        f"Sentences of the chosen texts: {number(gate.sentences)} on average, over {gate.chosen}."
    )
    if came:
        yield table(("texts by what they came to", "count"), came)
    if faults:
        yield f"Attempts that came to no text, and are in none of these rates: {faults}."


def _committee(report: ReappraisalReport) -> Iterator[str]:
    committee = report.committee
    if committee is None:
        return
    yield "## The committee"
    yield from committee_text.sections(committee)
    yield (
        f"Mean score of the {committee.chosen} chosen texts, the maxima of what they were selected by: "
        f"{number(committee.chosen_score)}."
    )


def _compared(compared: ComparisonReport) -> Iterator[Row]:
    """Rows of what else became of the comparisons."""
    yield ("chosen texts that were compared", *counted(compared.compared))
    if compared.late:
        yield ("  not in time", str(compared.late), NOTHING, NOTHING)
    for code, count in sorted(compared.errors.items()):
        yield (f"  failed: {code.value}", str(count), NOTHING, NOTHING)
    yield ("pairs that are ties", *counted(compared.ties))
    yield ("pairs with an abstention", *counted(compared.abstained))
    yield ("comparisons with verdicts that disagree in one text", *counted(compared.conflicting))
    yield ("comparisons suspected of injection", *counted(compared.injection_suspected))
    yield from samples(compared.judge)
