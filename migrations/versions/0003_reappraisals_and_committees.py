"""Reappraisals and committees: steps of chunks, texts and scores between stages, anchors.

It locks `chunk` against all else, and `runtime_epoch` against writing, until it commits: API and workers are stopped
meanwhile. The new column is filled without rewriting the table.

The way down locks both against all else. It refuses what revision 0002 cannot hold: jobs that are no judgements.

Revision: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

USAGE = ("calls", "prompt_tokens", "cached_tokens", "completion_tokens")


def upgrade() -> None:
    op.add_column("chunk", sa.Column("step", sa.SmallInteger(), server_default="0", nullable=False))
    op.alter_column("chunk", "step", server_default=None)
    op.execute("UPDATE chunk SET step = 1 WHERE stage = 'conclude'")
    op.create_table(
        "reappraisal",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("texts", sa.Text(), nullable=False),
        sa.Column("flags", sa.ARRAY(sa.Text()), server_default="{}", nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in USAGE),
        sa.PrimaryKeyConstraint("job_id", "seq"),
    )
    op.create_table(
        "score",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("epoch_id", sa.Uuid(), nullable=False),
        sa.Column("scores", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("outcomes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("valid", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("asked", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("flags", sa.ARRAY(sa.Text()), server_default="{}", nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in USAGE),
        sa.PrimaryKeyConstraint("job_id", "seq", "model"),
    )
    op.create_table(
        "assessment",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("selected", sa.SmallInteger(), nullable=True),
        sa.Column("body", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "seq"),
    )
    op.create_table(
        "anchor_texts",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("texts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_table(
        "anchor_scores",
        sa.Column("epoch_id", sa.Uuid(), nullable=False),
        sa.Column("scale", sa.Text(), nullable=False),
        sa.Column("scores", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["epoch_id"], ["runtime_epoch.id"]),
        sa.PrimaryKeyConstraint("epoch_id", "scale"),
    )


def downgrade() -> None:
    if count := op.get_bind().scalar(sa.text("SELECT count(*) FROM job WHERE kind <> 'judgement'")):
        raise ValueError(f"{count} jobs are no judgements, which revision 0002 cannot hold: delete them first")
    for table in ("anchor_scores", "anchor_texts", "assessment", "score", "reappraisal"):
        op.drop_table(table)
    op.drop_column("chunk", "step")
