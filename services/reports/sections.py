"""Parts of a report's text that several kinds of reports have.

Guarantee: pure, and says nothing that the report does not hold. Every rate stands beside its count and denominator.
"""

from collections.abc import Iterator, Sequence

from services.contract.options import StopAt
from services.contract.reports.parts import (
    ItemCounts,
    JudgeReport,
    Note,
    OverClusters,
    Position,
    ReportedJob,
    ReportedJudge,
    Spent,
    Usage,
    WinRate,
)
from services.reports.markup import NOTHING, counted, interval, percent, plain, table, whole
from services.reports.outcomes import UNANSWERED
from services.vocabulary import Decide, Mode, Orders

ORDERS = {Orders.BOTH: "both orders", Orders.GIVEN: "the given order", Orders.RANDOM: "one random order"}
MODES = {Mode.DIRECT: "direct mode", Mode.REASON: "with reasoning"}
DECIDED_BY = {Decide.SOFT: "soft verdicts", Decide.VOTE: "votes", Decide.SCORES: "scores"}
WINS = (
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
Row = tuple[str, ...]


def title(job: ReportedJob) -> str:
    """The heading of all."""
    return f"# {plain(job.name)} ({job.id})" if job.name else f"# {job.id}"


def heard(job: ReportedJob, items: ItemCounts) -> str:
    """How far the job is, as the beginning of a sentence."""
    return f"{job.status.value}: {items.heard} of {items.total} items heard"


def way(judge: ReportedJudge) -> str:
    """How a judge hears."""
    most = "" if judge.early_stop == "never" else "up to "
    samples = f", {most}{judge.samples} samples an order" if judge.samples > 1 else ""
    if isinstance(judge.early_stop, StopAt) and samples:
        samples += f" until {100 * judge.early_stop.confidence:g} % sure"
    return f"{MODES[judge.mode]}, in {ORDERS[judge.orders]}{samples}, decided by {DECIDED_BY[judge.decide]}"


def system(called: str | None) -> str:
    """Who wrote some texts."""
    return "unnamed" if called is None else plain(called)


def win_rates(rates: Sequence[tuple[str, WinRate]], about: str) -> Iterator[str]:
    """A table with a row a rate, and how it is read: `about` says what a win is."""
    yield table(WINS, [_win_rate(called, rate) for called, rate in rates])
    yield f"{about} A tie counts as half a win. {over_clusters([rate for _, rate in rates])}".rstrip()
    if any(rate.t is not None and not 0 <= rate.t.low <= rate.t.high <= 1 for _, rate in rates):
        yield "Student's t knows no bounds: over few clusters its interval may leave 0 to 100 %."


def over_clusters(means: Sequence[OverClusters]) -> str:
    """Which interval is to be quoted; nothing where there is nothing to quote."""
    if any(mean.bootstrap is not None for mean in means):
        return "Quote the interval over clusters."
    return "Over a single cluster there is no interval to quote." if any(mean.clusters for mean in means) else ""


def _win_rate(called: str, rate: WinRate) -> Row:
    counts = (str(rate.wins), str(rate.ties), str(rate.losses), percent(rate.rate))
    return (called, *counts, interval(rate.bootstrap), str(rate.clusters), interval(rate.t), interval(rate.wilson))


def grades(judges: Sequence[JudgeReport]) -> Iterator[str]:
    """The mean grades by system and judge, if there are any."""
    rows = [
        (plain(grade.system), plain(judge.name), f"{grade.mean:.2f}", str(grade.candidates))
        for judge in judges
        for grade in judge.grades
    ]
    if rows:
        yield "## Grades"
        yield table(("", "judge", "mean grade", "candidates"), rows)


def position(found: Position) -> str:
    """What a judge's answers owe to the order of the candidates."""
    kappa = "" if found.order_kappa is None else f" Kappa between the orders: {found.order_kappa:.2f}."
    return (
        f"Single answers took the first slot: {whole(found.first_slot)}; without bias about 50 %.\n"
        f"Both orders gave the same answer: {whole(found.consistent)}.{kappa}"
    )


def outcomes(rows: Sequence[Row]) -> str:
    """A table of what else became of items and calls."""
    return table(("", "count", "rate", "95 % (Wilson)"), rows)


def failures(items: ItemCounts) -> Iterator[Row]:
    """Rows of the items that failed."""
    yield ("failed items", *counted(items.failed))
    for code, count in sorted(items.errors.items()):
        yield (f"  {code.value}", str(count), NOTHING, NOTHING)


def suspected(items: ItemCounts) -> Row:
    """The row of the items whose texts hold what belongs to prompts."""
    return ("items suspected of injection", *counted(items.injection_suspected))


def samples(judge: JudgeReport) -> Iterator[Row]:
    """Rows of what became of the samples of the only judge."""
    answers, stopped = judge.answers, judge.stopped_early
    yield ("samples with an answer", *counted(answers.valid))
    for outcome in UNANSWERED:
        if count := answers.outcomes[outcome]:
            yield (f"  without: {outcome.value}", str(count), NOTHING, NOTHING)
    if answers.forced is not None:
        yield ("answers that had to be forced", *counted(answers.forced))
    if stopped is not None:
        yield ("items settled before the last sample", *counted(stopped.certain))
        yield ("items stopped by the sequential test", *counted(stopped.confident))


def cost(usage: Usage) -> str:
    """What the job took."""
    speed = NOTHING if usage.calls_per_second is None else f"{usage.calls_per_second:.1f} calls/s"
    seconds = "" if usage.seconds is None else f" in {usage.seconds:.1f} s"
    return f"{usage.calls:,} calls{seconds}, {speed}. {tokens(usage)}."


def tokens(usage: Spent) -> str:
    """The tokens of some calls."""
    told = "" if usage.cached.n == usage.prompt_tokens else f" of the {usage.cached.n:,} of which this is known"
    return (
        f"{usage.prompt_tokens:,} prompt tokens ({percent(usage.cached.rate)}{told} cached), "
        f"{usage.completion_tokens:,} completion tokens"
    )


def notes(given: Sequence[Note], *, named: bool) -> Iterator[str]:
    """The notes, if there are any. `named`: with the judge that one is about."""
    if given:
        yield "## Notes"
        about = {note.judge: f"{plain(note.judge)}: " if note.judge and named else "" for note in given}
        yield "\n".join(f"- {about[note.judge]}{note.message}" for note in given)
