"""Reports of reappraisal and scoring jobs out of the database, over rows as the stages of a job leave them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import Connection, Engine

from services.contract.options import (
    CommitteeSettings,
    JudgeSettings,
    ReappraisalSettings,
    Sampling,
    ScoringSettings,
)
from services.contract.reports.reappraisal import ReappraisalReport
from services.contract.reports.scoring import ScoringReport
from services.foundation.database import copy_rows, transaction
from services.foundation.errors import NotFound
from services.foundation.identifiers import new_id, shown
from services.foundation.jsontext import escaped
from services.jobs.choice import Choice
from services.jobs.items import ANY, facets_json
from services.jobs.record import (
    ASSESSMENT_COLUMNS,
    OPINION_COLUMNS,
    REAPPRAISAL_COLUMNS,
    SCORE_COLUMNS,
    VERDICT_COLUMNS,
)
from services.jobs.rows import assessment_row, opinion_row, scores_row, settled_row, written_row
from services.judging.opinion import Opinion
from services.judging.proceeding import Spent
from services.judging.scoring import Scores
from services.judging.writing import Text, Written
from services.reappraisal.committee import Rule, assess, choose
from services.reports.queries import REAPPRAISED, report
from services.vocabulary import Decide, Flag, ItemError, JobKind, Mode, OnConflict, Order, Orders, Outcome, Winner
from tests.hearings import opinion_of_both
from tests.integration.reports.conftest import insert

START = datetime(2026, 11, 29, tzinfo=UTC)
ANCHORS = {"rm": [-1.0, 1.0], "grm": [0.0, 4.0]}  # means 0 and 2, standard deviations 1 and 2
FLAGS = frozenset({Flag.CONFLICTING, Flag.INJECTION_SUSPECTED})
SPENT = Spent(calls=5, prompt_tokens=700, cached_tokens=70, completion_tokens=20)
OWN = Sampling(temperature=None, top_p=None, top_k=None, max_tokens=None)
JUDGE = JudgeSettings(
    orders=Orders.BOTH,
    samples=1,
    early_stop="certain",
    mode=Mode.REASON,
    decide=Decide.VOTE,
    margin="blended",
    pairs="all",
    principle=None,
    score_policies=None,
    forced_verdict=True,
    on_conflict=OnConflict.TIE,
    tie_margin=0,
    reading="strict",
    sampling=OWN,
)
COMMITTEE = CommitteeSettings(
    name="reappraisal",
    members={"rm": ["rm-0"], "grm": ["grm-7b"]},
    judges={"grm-7b": JUDGE},
    weights={"rm": 1.0, "grm": 1.0},
    normalise="reference",
    anchors="0" * 64,
)
REAPPRAISALS = ReappraisalSettings(
    model="writer",
    candidates=2,
    gate_retries=1,
    sampling=OWN,
    committee=COMMITTEE,
    compare="llama",
    judges={"llama": JUDGE},
    pool="six",
    selected_on=["six"],
)


def insert_job(connection: Connection, tenant: UUID, kind: JobKind, settings: Any, items: Sequence[Any]) -> UUID:
    """A job that ended after 100 seconds; its items are told by what callers send of them."""
    job_id = new_id()
    insert(
        connection,
        "job",
        id=job_id,
        tenant_id=tenant,
        day=date(2026, 11, 29),
        kind=kind,
        status="completed_with_errors",
        priority=1,
        judges=["llama"],
        settings=settings.model_dump_json(),
        name="nightly",
        total=len(items),
        started_at=START,
        ended_at=START + timedelta(seconds=100),
        deadline=START,
    )
    for seq, item in enumerate(items):
        facets = facets_json(ANY[kind].facets(item), item.get("cluster"))
        row = {"custom_id": f'"q{seq}"', "custom_id_hash": UUID(int=seq), "input": escaped(item), "facets": facets}
        insert(connection, "item", job_id=job_id, seq=seq, **row)
    return job_id


def opinion(winner: Winner | None, error: ItemError | None = None) -> Opinion:
    """Of a judge that answered both orders alike, or neither."""
    return opinion_of_both(
        "llama",
        winner,
        {} if winner is None else {Order.AB: {winner: 1}, Order.BA: {winner: 1}},
        error,
        consistent=None if error else True,
        first_slot=0 if error else 1,
        prompt_tokens=300,
        cached_tokens=30,
        completion_tokens=8,
    )


def choice(raw: dict[str, list[float | None]], pool: Sequence[int]) -> Choice:
    """What the committee makes of a pool by the raw scores of its members."""
    assessments = assess(raw, Rule(COMMITTEE.weights, "reference"), ANCHORS)
    best = choose(assessments)
    models = zip(("rm-0", "grm-7b"), raw.values(), strict=True)
    return Choice(
        None if best is None else pool[best],
        "reappraisal",
        pool,
        texts=[{"text": place, **asdict(one)} for place, one in zip(pool, assessments, strict=True)],
        outcomes={model: ["failed" if one is None else "decided" for one in scores] for model, scores in models},
        epochs={"rm-0": str(new_id()), "grm-7b": str(new_id())},
        error={"code": "runtime_error", "message": "grm did not score it"} if best is None else None,
    )


def scored(job_id: UUID, seq: int, flags: frozenset[Flag], model: str = "rm-0") -> tuple[Any, ...]:
    """A model's scores of one text."""
    spent = Spent(calls=1, prompt_tokens=200, cached_tokens=0, completion_tokens=0)
    scores = Scores((0.0,), (Outcome.DECIDED,), valid=(1,), asked=(1,), flags=flags, spent=spent)
    return scores_row(job_id, seq, model, new_id(), scores)


def accepted(candidate: int, attempt: int = 0, sentences: int = 2) -> Text:
    return Text(candidate, attempt, Outcome.ACCEPTED, f"Text {candidate}.", sentences)


HOSTILE = Text(0, 0, Outcome.TOO_LONG, 'NUL \0, half a pair \ud800, "text":"x","outcome":"accepted", \n and \\"\\', 3)
GATED = Choice(None, "reappraisal", [], error={"code": "gated", "message": "no text passed the gate: 2 empty"})


@pytest.fixture
def reappraised(engine: Engine, tenant: UUID) -> UUID:
    """A job of six scenarios: compared, lost, not in time, not comparable, gated, and one that was never heard."""
    baselines = [{"content": "x", "system": "gpt"}, "x", "x", {"content": "x", "system": "\ud800"}, "x", "x"]
    items = [
        {"scenario": "s", "baseline": baseline, "cluster": f"v\0{seq % 2}"} for seq, baseline in enumerate(baselines)
    ]
    written = [
        [HOSTILE, accepted(0, 1, 1), accepted(1)],
        [accepted(0), accepted(1)],
        [accepted(0)],
        [accepted(0)],
        [Text(0, 0, Outcome.EMPTY, "", 0), Text(0, 1, Outcome.EMPTY, "", 0)],
    ]
    choices = [
        choice({"rm": [1.0, 2.0], "grm": [4.0, 10.0]}, [1, 2]),  # z: (1, 1) and (2, 4)
        choice({"rm": [3.0, 0.0], "grm": [2.0, 2.0]}, [0, 1]),  # z: (3, 0) and (0, 0)
        choice({"rm": [0.0], "grm": [4.0]}, [0]),  # z: (0, 1)
        choice({"rm": [1.0], "grm": [2.0]}, [0]),  # z: (1, 0)
        GATED,
    ]
    opinions = {0: opinion(Winner.A), 1: opinion(Winner.B), 3: opinion(None, ItemError.TRUNCATED)}
    with transaction(engine) as connection:
        job_id = insert_job(connection, tenant, JobKind.REAPPRAISAL, REAPPRAISALS, items)
        for seq, (texts, chosen) in enumerate(zip(written, choices, strict=True)):
            said = opinions.get(seq)
            missing = ["llama"] if said is None and chosen.error is None else []
            rows = {
                "reappraisal": (
                    REAPPRAISAL_COLUMNS,
                    written_row(job_id, seq, Written(tuple(texts), FLAGS if seq == 2 else frozenset(), SPENT)),
                ),
                "assessment": (ASSESSMENT_COLUMNS, assessment_row(job_id, seq, chosen.selected, chosen.body())),
                "verdict": (
                    VERDICT_COLUMNS,
                    settled_row(job_id, seq, SPENT, error=chosen.error, opinion=said, missing=missing),
                ),
            }
            for table, (columns, row) in rows.items():
                copy_rows(connection, table, columns, [row])
            if said is not None:
                copy_rows(connection, "opinion", OPINION_COLUMNS, [opinion_row(job_id, seq, said)])
        conflicting = frozenset({Flag.CONFLICTING})
        graded = scored(job_id, 1, frozenset(), "grm-7b")  # a judge's grades: its runtime told what was cached
        rows = [scored(job_id, 3, FLAGS), scored(job_id, 1, conflicting), graded]
        copy_rows(connection, "score", SCORE_COLUMNS, rows)
    return job_id


def test_a_reappraisal_job_is_reported_by_gate_committee_and_comparison(
    engine: Engine, tenant: UUID, reappraised: UUID
) -> None:
    made = report(engine, tenant, reappraised)
    assert isinstance(made, ReappraisalReport)
    assert (made.job.id, made.job.model, made.job.committee) == (shown("job", reappraised), "writer", "reappraisal")
    assert (made.job.pool, made.job.selected_on) == ("six", ("six",))
    assert made.job.compare is not None
    assert (made.job.compare.name, made.job.compare.mode) == ("llama", Mode.REASON)
    assert (made.items.total, made.items.heard, made.items.errors) == (6, 5, {ItemError.GATED: 1})
    assert (made.usage.calls, made.usage.prompt_tokens, made.usage.calls_per_second) == (25, 3_500, 0.25)
    assert (made.usage.cached.count, made.usage.cached.n) == (350, 3_500 - 2 * 200)
    assert (made.items.injection_suspected.count, made.items.injection_suspected.n) == (2, 5)
    gate = made.gate
    assert (gate.accepted.count, gate.accepted.n, gate.repeated.count, gate.none_passed.count) == (6, 9, 2, 1)
    assert (gate.outcomes[Outcome.TOO_LONG], gate.outcomes[Outcome.EMPTY]) == (1, 2)
    assert (gate.chosen, gate.sentences) == (4, 2.0)
    z = np.array([(1, 1), (2, 4), (3, 0), (0, 0), (0, 1), (1, 0)])
    scores = z.mean(axis=1) - 0.5 * z.std(axis=1)
    committee = made.committee
    assert committee is not None
    assert (committee.scored.count, committee.scored.n) == (6, 6)
    assert committee.score == pytest.approx(scores.mean())
    assert committee.disagreement == pytest.approx(z.std(axis=1).mean())
    assert (committee.chosen, committee.chosen_score) == (4, pytest.approx(scores[[1, 2, 4, 5]].mean()))
    rm, grm = committee.members
    assert (rm.mean, grm.mean, rm.std) == pytest.approx((*z.mean(axis=0), z[:, 0].std()))
    assert (rm.favourite.count, rm.favourite.n, grm.favourite.count, grm.favourite.n) == (2, 2, 2, 2)
    assert committee.correlations[0].r == pytest.approx(np.corrcoef(z.T)[0, 1])


def test_a_comparison_is_reported_with_its_baselines(engine: Engine, tenant: UUID, reappraised: UUID) -> None:
    made = report(engine, tenant, reappraised)
    assert isinstance(made, ReappraisalReport)
    compared = made.comparison
    assert compared is not None
    assert (compared.compared.count, compared.compared.n, compared.late) == (2, 4, 1)
    assert compared.errors == {ItemError.TRUNCATED: 1}
    assert (compared.overall.pairs, compared.overall.wins, compared.overall.rate, compared.overall.clusters) == (
        2,
        1,
        0.5,
        2,
    )
    assert [(rate.system, rate.pairs, rate.wins) for rate in compared.baselines] == [
        ("gpt", 1, 1),
        (None, 1, 0),
        ("\ud800", 0, 0),
    ]
    assert (compared.judge.answers.valid.count, compared.judge.answers.valid.n) == (4, 6)
    assert (compared.judge.usage.calls, compared.judge.usage.prompt_tokens) == (6, 900)
    assert [note.code for note in made.notes] == [
        "not_clinical",
        "incomplete",
        "failures",
        "selected_for",
        "pool_shared",
        "few_clusters",
    ]
    assert json.loads(made.json_text())["kind"] == "reappraisal"


def test_what_was_written_stays_in_the_database(engine: Engine, reappraised: UUID) -> None:
    with transaction(engine) as connection:
        rows = connection.execute(REAPPRAISED, {"job_id": reappraised, "classifiers": []}).mappings().all()
    written = json.loads(rows[0]["texts"])
    kept = [HOSTILE, accepted(0, 1, 1), accepted(1)]
    assert written == [json.loads(json.dumps(text.as_json())) | {"text": ""} for text in kept]


def test_an_item_of_which_nothing_is_left_but_its_error_is_counted(engine: Engine, tenant: UUID) -> None:
    error = {"code": "poisoned", "message": "again and again"}
    settings = REAPPRAISALS.model_copy(update={"committee": None, "compare": None, "judges": {}})
    with transaction(engine) as connection:
        job_id = insert_job(connection, tenant, JobKind.REAPPRAISAL, settings, [{"scenario": "s"}])
        copy_rows(connection, "verdict", VERDICT_COLUMNS, [settled_row(job_id, 0, SPENT, error=error)])
    made = report(engine, tenant, job_id)
    assert isinstance(made, ReappraisalReport)
    assert (made.items.errors, made.gate.accepted.n, made.gate.none_passed.n) == ({ItemError.POISONED: 1}, 0, 0)
    assert (made.committee, made.comparison) == (None, None)


def test_a_scoring_job_is_reported_by_system(engine: Engine, tenant: UUID) -> None:
    context = [{"role": "user", "content": "Why?"}]
    systems = ["ours", "ours", "theirs", None, "theirs"]
    items = [{"context": context, "response": "\0", "system": system, "cluster": "c"} for system in systems]
    raw: list[tuple[float | None, float | None]] = [(2.0, 4.0), (1.0, 6.0), (0.0, 2.0), (0.0, None)]
    with transaction(engine) as connection:
        job_id = insert_job(connection, tenant, JobKind.SCORING, ScoringSettings(committee=COMMITTEE), items)
        for seq, (rm, grm) in enumerate(raw):
            told = choice({"rm": [rm], "grm": [grm]}, [0])
            verdict = settled_row(job_id, seq, SPENT, error=told.error)
            copy_rows(connection, "verdict", VERDICT_COLUMNS, [verdict])
            row = assessment_row(job_id, seq, told.selected, told.body())
            copy_rows(connection, "assessment", ASSESSMENT_COLUMNS, [row])
        copy_rows(connection, "score", SCORE_COLUMNS, [scored(job_id, 1, FLAGS), scored(job_id, 2, frozenset())])
    made = report(engine, tenant, job_id)
    assert isinstance(made, ScoringReport)
    z = np.array([(2, 1), (1, 2), (0, 0)])
    scores = z.mean(axis=1) - 0.5 * z.std(axis=1)
    assert [(one.system, one.texts, one.mean) for one in made.systems] == [
        ("ours", 2, pytest.approx(scores[:2].mean())),
        ("theirs", 1, pytest.approx(0)),
        (None, 0, None),
    ]
    assert (made.items.total, made.items.heard, made.items.errors) == (5, 4, {ItemError.RUNTIME_ERROR: 1})
    assert (made.items.injection_suspected.count, made.items.injection_suspected.n) == (1, 4)
    assert made.committee.score == pytest.approx(scores.mean())
    assert (made.committee.members[1].scored.count, made.committee.members[1].unscored[Outcome.FAILED]) == (3, 1)
    assert (made.job.committee, made.usage.calls) == ("reappraisal", 20)
    assert (made.usage.prompt_tokens, made.usage.cached.count, made.usage.cached.n) == (2_800, 280, 2_400)
    assert [note.code for note in made.notes] == ["incomplete", "failures", "few_clusters"]


def test_another_tenants_job_is_not_there(engine: Engine, reappraised: UUID) -> None:
    with pytest.raises(NotFound):
        report(engine, new_id(), reappraised)
