"""The texts of reappraisal and scoring reports show what the reports hold, whatever callers call their things."""

import re

import pytest

from services.contract.jobs import NOT_CLINICAL
from services.reports.committee import Assessed
from services.reports.reappraisal.build import build
from services.reports.scoring.build import build as build_scoring
from services.reports.text import markdown
from services.vocabulary import Decide, ItemError, JobStatus, Mode, Outcome, Winner
from tests.unit.reports.reappraisal_rows import (
    committee,
    reappraisals,
    reappraised,
    response,
    scored,
    scorings,
    text,
    unscored,
)
from tests.unit.reports.rows import TIE, B, judge, opinion, silent
from tests.unit.reports.test_report_text import cells, rows_of, tables

ROWS = [
    reappraised(
        0,
        text(Outcome.TOO_LONG, 3),
        text(attempt=1, sentences=1),
        text(),
        assessed=scored((0.0, 1.0), (1.0, 1.0), places=(1, 2)),
        selected=2,
        baselines=("gpt", None),
        opinion=opinion(
            winner=None,
            p_a=None,
            consistent=None,
            votes={},
            first_slot=0,
            error=ItemError.TRUNCATED,
            outcomes={Outcome.TRUNCATED: 4},
            valid=0,
            invalid=4,
        ),
    ),
    reappraised(1, assessed=scored((2.0, 2.0)), baselines=("gpt",), opinion=opinion(grades=(4.0, 3.0))),
    reappraised(2, assessed=scored((2.0, 3.0)), baselines=("gpt",), opinion=opinion(winner=TIE)),
    reappraised(3, assessed=scored((2.0, 3.0)), baselines=("gpt",), opinion=opinion(winner=B)),
    reappraised(4, assessed=scored((2.0, 3.0)), baselines=("gpt",)),
    reappraised(5, assessed=unscored({"grm": Outcome.FAILED}), selected=None, error=ItemError.RUNTIME_ERROR),
    reappraised(6, text(Outcome.EMPTY, 0), assessed=Assessed(0, {}, ()), error=ItemError.GATED, suspected=True),
]
JOB = reappraisals(
    candidates=2,
    committee="reappraisal",
    compare=judge(mode=Mode.REASON, decide=Decide.VOTE),
    pool="six",
    selected_on=("six", "seven"),
    status=JobStatus.COMPLETED_WITH_ERRORS,
)
PAGE = markdown(build(JOB, committee(), 8, ROWS))


def test_the_heading_says_who_writes_chooses_and_compares_and_on_what() -> None:
    assert PAGE.startswith("# nightly (job_1)\n\ncompleted_with_errors: 7 of 8 items heard. ")
    assert "writer writes 2 texts an item, each in at most 3 attempts; the committee reappraisal chooses.\n" in PAGE
    assert "Compared by smollm2, with reasoning, in both orders, decided by votes.\n" in PAGE
    assert "Pool of the scenarios: six. Pools that what writes or chooses was selected on: six, seven.\n" in PAGE


def test_a_plain_job_is_told_plainly() -> None:
    page = markdown(build(reappraisals(gate_retries=0), None, 1, [reappraised(0)]))
    assert "items heard. writer writes 1 text an item; the first that passes the gate stands.\n" in page
    assert (
        "Pool of the scenarios: –. Pools that what writes or chooses was selected on: none that the job names." in page
    )
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        "## The gate",
        "## What stands beside it",
        "## Cost",
        "## Notes",
    ]


def test_the_wins_of_the_chosen_texts_stand_by_baseline() -> None:
    assert cells(PAGE, "all baselines")[:4] == ["1", "1", "1", "50.0 %"]
    gpt, graded = rows_of(PAGE, "gpt")
    assert (gpt[:4], graded) == (["1", "1", "1", "50.0 %"], ["smollm2", "3.00", "1"])
    assert cells(PAGE, "unnamed") == ["0", "0", "0", "–", "–", "0", "–", "–"]
    assert rows_of(PAGE, "writer") == [["smollm2", "4.00", "1"]]
    assert "A win is the chosen text's. A tie counts as half a win. Quote the interval over clusters." in PAGE


def test_the_gate_shows_what_it_let_pass() -> None:
    assert "Texts that passed: 77.8 % (7 of 9, 95 % " in PAGE
    assert "Beyond a candidate's first attempt: 11.1 % (1 of 9, 95 % " in PAGE
    assert "Items without a text that passed: 14.3 % (1 of 7, 95 % " in PAGE
    assert "Sentences of the chosen texts: 2.00 on average, over 5." in PAGE
    assert [cells(PAGE, f"  {outcome}") for outcome in ("accepted", "empty", "too_long")] == [["7"], ["1"], ["1"]]
    assert not rows_of(PAGE, "  aborted")


def test_the_committee_shows_its_members_and_what_they_chose() -> None:
    assert "reappraisal, normalised by its anchors. Scored by every member: 85.7 % (6 of 7, 95 % " in PAGE
    assert "Mean score of these texts: 1.67. Mean disagreement of the members on them: 0.33." in PAGE
    assert rows_of(PAGE, "seeds")[0] == ["1", "7 of 7 (100.0 %)", "1.50", "0.76", "1 of 1 (100.0 %)"]
    assert cells(PAGE, "grm") == ["1", "6 of 7 (85.7 %)", "2.17", "0.90", "1 of 1 (100.0 %)"]
    assert "\n- grm did not score: 1 failed.\n" in PAGE
    assert "seeds did not score" not in PAGE
    assert cells(PAGE, "seeds and grm") == ["0.85", "6"]
    assert "Mean score of the 5 chosen texts, the maxima of what they were selected by: 1.95." in PAGE


def test_what_stands_beside_the_comparison_is_counted() -> None:
    assert cells(PAGE, "failed items")[:2] == ["2 of 7", "28.6 %"]
    assert [cells(PAGE, f"  {error}")[0] for error in ("gated", "runtime_error")] == ["1", "1"]
    assert cells(PAGE, "chosen texts that were compared")[:2] == ["3 of 5", "60.0 %"]
    assert cells(PAGE, "  not in time")[0] == "1"
    assert cells(PAGE, "  failed: truncated")[0] == "1"
    assert cells(PAGE, "pairs that are ties")[:2] == ["1 of 3", "33.3 %"]
    assert cells(PAGE, "pairs with an abstention")[:2] == ["0 of 3", "0.0 %"]
    assert cells(PAGE, "comparisons suspected of injection")[0] == "0 of 4"
    assert cells(PAGE, "items suspected of injection")[:2] == ["1 of 7", "14.3 %"]
    assert cells(PAGE, "samples with an answer")[0] == "6 of 10"
    assert cells(PAGE, "  without: truncated")[0] == "4"
    assert "## Position\n\nSingle answers took the first slot: 100.0 % (6 of 6, 95 % " in PAGE
    assert "21 calls in 10.0 s, 2.1 calls/s. 700 prompt tokens (25.0 % cached), 280 completion tokens." in PAGE


def test_the_notes_are_listed_the_research_one_first() -> None:
    report = build(JOB, committee(), 8, ROWS)
    listed = PAGE.partition("## Notes\n\n")[2].splitlines()
    assert listed == [f"- {note.message}" for note in report.notes]
    assert listed[0] == f"- {NOT_CLINICAL}"
    assert "- 2 failed items have no chosen text: they are in no mean and in no win rate." in listed


def test_a_job_without_one_success_shows_dashes_not_zeros() -> None:
    rows = [reappraised(0, text(Outcome.FAILED, None), error=ItemError.RUNTIME_ERROR, assessed=Assessed(0, {}, ()))]
    page = markdown(build(JOB, committee(), 1, rows))
    assert cells(page, "all baselines") == ["0", "0", "0", "–", "–", "0", "–", "–"]
    assert "Mean score of these texts: –. Mean disagreement of the members on them: –." in page
    assert "Sentences of the chosen texts: – on average, over 0." in page
    assert cells(page, "seeds and grm") == ["–", "0"]
    assert "nan" not in page
    assert "A win is the chosen text's. A tie counts as half a win.\n" in page
    assert "Texts that passed: – (0 of 0, 95 % –)." in page
    assert "Attempts that came to no text, and are in none of these rates: 1 failed.\n" in page
    assert not rows_of(page, "  failed")


def test_one_text_has_no_spread() -> None:
    page = markdown(build(JOB, committee(), 1, [reappraised(0, assessed=scored((1.0, 2.0)))]))
    assert [rows_of(page, member)[0][2:4] for member in ("seeds", "grm")] == [["1.00", "–"], ["2.00", "–"]]


QUOTE = "A win is the chosen text's. A tie counts as half a win. "
BOUNDLESS = "\n\nStudent's t knows no bounds: over few clusters its interval may leave 0 to 100 %.\n"


@pytest.mark.parametrize(
    ("clusters", "winners", "quoted", "boundless"),
    [
        ("cc", (None, B), "Over a single cluster there is no interval to quote.", False),
        ("cd", (None, B), "Quote the interval over clusters.", True),
        ("cdef", (TIE,) * 4, "Quote the interval over clusters.", False),
    ],
)
def test_an_interval_is_to_be_quoted_where_there_is_one(
    clusters: str, winners: tuple[Winner | None, ...], quoted: str, boundless: bool
) -> None:
    said = [opinion() if winner is None else opinion(winner=winner) for winner in winners]
    rows = [
        reappraised(seq, baselines=("gpt",), opinion=one, cluster=cluster)
        for seq, (one, cluster) in enumerate(zip(said, clusters, strict=True))
    ]
    page = markdown(build(reappraisals(compare=judge()), None, len(rows), rows))
    assert f"{QUOTE}{quoted}\n" in page
    assert (BOUNDLESS in page) is boundless


def test_the_tokens_of_which_it_is_known_stand_beside_the_share_of_the_cached() -> None:
    some, none = (
        markdown(build(reappraisals(), None, 1, [reappraised(0, classified_tokens=classified, cached_tokens=cached)]))
        for classified, cached in ((60, 25), (100, 0))
    )
    assert "100 prompt tokens (62.5 % of the 40 of which this is known cached), " in some
    assert "100 prompt tokens (– of the 0 of which this is known cached), " in none


def test_scores_stand_by_system_the_best_first() -> None:
    rows = [
        response(0, 0.0, 1.0, system="theirs", cluster="c"),
        response(1, 1.0, 1.0, system="theirs", cluster="d"),
        response(2, 2.0, 2.0, system="ours"),
        response(3, system="ours", error=ItemError.TRUNCATED, assessed=unscored({"seed1": Outcome.TRUNCATED})),
        response(4, -1.0, 1.0),
    ]
    page = markdown(build_scoring(scorings(status=JobStatus.COMPLETED_WITH_ERRORS), committee(), 5, rows))
    assert "completed_with_errors: 5 of 5 items heard by the committee reappraisal." in page
    assert cells(page, "ours") == ["1 of 2 (50.0 %)", "2.00", "–", "1", "–", "0.00"]
    assert cells(page, "theirs") == ["2 of 2 (100.0 %)", "0.62", "0.25 to 1.00", "2", "-4.14 to 5.39", "0.25"]
    assert cells(page, "unnamed") == ["1 of 1 (100.0 %)", "-0.50", "–", "1", "–", "1.00"]
    assert "A score is the mean - 0.5 * std of the members' z. Quote the interval over clusters.\n" in page
    assert page.index("| ours") < page.index("| theirs") < page.index("| unnamed")
    assert rows_of(page, "seeds")[0] == ["1", "4 of 5 (80.0 %)", "0.50", "1.12"]
    assert "- seeds did not score: 1 truncated." in page
    assert cells(page, "failed items")[0] == "1 of 5"
    assert "- 1 failed items have no score: they are in no mean." in page


def test_an_unheard_scoring_job_has_a_table_all_the_same() -> None:
    page = markdown(build_scoring(scorings(status=JobStatus.QUEUED), committee(), 5, []))
    for table in tables(page):
        assert len({line.count("|") for line in table}) == 1
        assert re.fullmatch(r"\| :-+ (\| -+: )*\|", table[1])


NAMES = ["a|b", "line\nbreak", "\x1b[31mred", "\ud800", "<script>", "x" * 500, "# heading", "`code`"]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_leave_every_table_in_shape(name: str) -> None:
    job = reappraisals(
        model=name, committee=name, compare=judge(name), pool=name, selected_on=(name,), name="evil\n# forged\n| a |"
    )
    hostile = committee(name=name, members={name: ["seed0"], "b": ["grm"]}, weights={name: 1.0, "b": 1.0})
    rows = [reappraised(i, baselines=(name,), opinion=opinion(grades=(1.0, 2.0))) for i in range(2)]
    rows.append(reappraised(2, baselines=(name,), opinion=silent(ItemError.TRUNCATED)))
    scores = build_scoring(scorings(committee=name), hostile, 1, [response(0, system=name)])
    for page in (markdown(build(job, hostile, 3, rows)), markdown(scores)):
        page.encode("utf-8")
        assert "\x1b" not in page
        assert "<script>" not in page
        assert "x" * 100 not in page
        assert [line for line in page.splitlines() if line.startswith("# ")] == [page.splitlines()[0]]
        for table in tables(page):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
