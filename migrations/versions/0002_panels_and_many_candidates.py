"""Panels and many candidates: chunks that settle or wait, slots of calls, standings, options by judge.

It locks `job`, `chunk`, `trace` and `verdict` against all else, and `opinion` against writing, until it commits: API
and workers are stopped meanwhile. New columns are filled without rewriting their tables. Rewritten are every row of
`job` and `opinion` and the traces whose order is `ba`, about half of them: until the next vacuum they take their space
twice. The traces of opinions with unanswered samples are read; where those have been dropped, the opinion's `outcomes`
lack these samples.

The way down refuses what revision 0001 cannot hold: open jobs, and those with several judges, more than two candidates,
scores that decide, or another job's traces.

Revision: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Every sample was heard, and of two candidates alone.
SETTINGS_BY_JUDGE = """
    UPDATE job SET settings = jsonb_build_object(
        'panel', null,
        'judges', jsonb_build_object(judges[1], settings::jsonb || jsonb_build_object(
            'early_stop', 'never', 'margin', 'blended', 'pairs', 'all', 'principle', null, 'score_policies', null
        ))
    )::text
"""
SETTINGS_OF_ONE = """
    UPDATE job SET settings = (
        (settings::jsonb -> 'judges' -> judges[1]) - cast('{margin,pairs,principle,score_policies}' AS text[])
        || jsonb_build_object('early_stop', null)
    )::text
"""

# A cancelling job's count of cancelled items used to be set at its end alone.
COUNT_CANCELLED = """
    UPDATE job SET cancelled = (
        SELECT coalesce(sum(end_seq - first_seq - succeeded - failed), 0) FROM chunk
        WHERE chunk.job_id = job.id AND chunk.state = 'cancelled'
    ) WHERE status = 'cancelling'
"""

# Answers are decided or ties, as their votes say.
WIDEN_OPINIONS = """
    UPDATE opinion SET body = body || jsonb_build_object(
        'margin', null, 'ranking', null, 'stopped', null, 'standing', null, 'pairs', '[]'::jsonb, 'grades', null,
        'outcomes', (
            SELECT jsonb_strip_nulls(jsonb_build_object(
                'decided', nullif((body ->> 'valid')::int - coalesce(sum((votes ->> 'tie')::int), 0), 0),
                'tie', nullif(sum((votes ->> 'tie')::int), 0)
            )) FROM jsonb_each(body -> 'votes') AS by_order("order", votes)
        )
    )
"""
NARROW_OPINIONS = """
    UPDATE opinion SET body = body - cast('{margin,ranking,stopped,standing,pairs,grades,outcomes}' AS text[])
"""

# A sample without an answer came to what the last of its calls that was sent came to: what did not fit was not sent.
COUNT_UNANSWERED = """
    WITH sample AS (
        SELECT trace.job_id, trace.seq, trace.judge,
            (array_agg(trace.outcome ORDER BY trace.outcome = 'context_overflow', trace.call DESC))[1] AS outcome
        FROM opinion
        JOIN job ON job.id = opinion.job_id
        JOIN trace ON trace.day = job.day AND trace.job_id = job.id AND trace.seq = opinion.seq
            AND trace.judge = opinion.judge
        WHERE (opinion.body ->> 'invalid')::int > 0
        GROUP BY trace.job_id, trace.seq, trace.judge, trace.shown_order, trace.sample
        HAVING NOT bool_or(trace.outcome IN ('decided', 'tie'))
    ), counted AS (
        SELECT job_id, seq, judge, outcome, count(*) AS samples FROM sample GROUP BY job_id, seq, judge, outcome
    ), unanswered AS (
        SELECT job_id, seq, judge, jsonb_object_agg(outcome, samples) AS outcomes
        FROM counted GROUP BY job_id, seq, judge
    )
    UPDATE opinion SET body = jsonb_set(body, '{outcomes}', (body -> 'outcomes') || unanswered.outcomes)
    FROM unanswered
    WHERE opinion.job_id = unanswered.job_id AND opinion.seq = unanswered.seq AND opinion.judge = unanswered.judge
"""

NOT_FOR_0001 = """
    SELECT count(*) FROM job
    WHERE status IN ('queued', 'running', 'cancelling') OR cardinality(judges) > 1 OR reread_of IS NOT NULL
       OR settings::jsonb -> 'judges' -> judges[1] ->> 'decide' = 'scores'
       OR EXISTS (SELECT 1 FROM verdict WHERE verdict.job_id = job.id AND verdict.standing IS NOT NULL)
       OR EXISTS (
           SELECT 1 FROM trace
           WHERE trace.day = job.day AND trace.job_id = job.id
             AND (trace.shown_order IS NULL OR NOT trace.slots <@ cast('{0,1}' AS smallint[]))
       )
"""


def upgrade() -> None:
    op.add_column("job", sa.Column("reread_of", sa.Uuid(), nullable=True))
    op.create_foreign_key("job_reread_of_fkey", "job", "job", ["reread_of"], ["id"], ondelete="SET NULL")
    op.execute(SETTINGS_BY_JUDGE)
    op.execute(COUNT_CANCELLED)

    op.add_column("chunk", sa.Column("settles", sa.Boolean(), server_default=sa.true(), nullable=False))
    op.alter_column("chunk", "settles", server_default=None)
    op.drop_index("chunk_open", table_name="chunk")
    op.create_index(
        "chunk_open",
        "chunk",
        ["job_id"],
        unique=False,
        postgresql_where="state IN ('waiting', 'queued', 'running')",
    )
    op.drop_index("chunk_results", table_name="chunk")
    op.create_index(
        "chunk_results",
        "chunk",
        ["job_id", "finished_version", "first_seq"],
        unique=False,
        postgresql_where="settles",
    )
    op.create_index(
        "chunk_settleable",
        "chunk",
        ["stage", "priority", "job_id", "ordinal", "part"],
        unique=False,
        postgresql_where="model = 'cpu' AND state = 'queued'",
    )

    op.add_column("trace", sa.Column("slots", sa.ARRAY(sa.SmallInteger()), server_default="{0,1}", nullable=False))
    op.alter_column("trace", "slots", server_default=None)
    op.execute("UPDATE trace SET slots = '{1,0}' WHERE shown_order = 'ba'")
    op.alter_column("trace", "shown_order", nullable=True)

    op.add_column("verdict", sa.Column("standing", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    op.add_column("verdict", sa.Column("missing", sa.ARRAY(sa.Text()), nullable=True))
    op.add_column("verdict", sa.Column("disagreement", sa.Float(), nullable=True))

    op.execute(WIDEN_OPINIONS)
    op.execute(COUNT_UNANSWERED)


def downgrade() -> None:
    if count := op.get_bind().scalar(sa.text(NOT_FOR_0001)):
        raise ValueError(f"{count} jobs are open, or are none that revision 0001 can hold: end or delete them first")
    op.execute(NARROW_OPINIONS)

    op.drop_column("verdict", "disagreement")
    op.drop_column("verdict", "missing")
    op.drop_column("verdict", "standing")

    op.alter_column("trace", "shown_order", nullable=False)
    op.drop_column("trace", "slots")

    op.drop_index("chunk_settleable", table_name="chunk")
    op.drop_index("chunk_results", table_name="chunk")
    op.create_index("chunk_results", "chunk", ["job_id", "finished_version", "first_seq"], unique=False)
    op.drop_index("chunk_open", table_name="chunk")
    op.create_index("chunk_open", "chunk", ["job_id"], unique=False, postgresql_where="state IN ('queued', 'running')")
    op.drop_column("chunk", "settles")

    op.execute(SETTINGS_OF_ONE)
    op.drop_constraint("job_reread_of_fkey", "job", type_="foreignkey")
    op.drop_column("job", "reread_of")
