"""Deaths: which chunks were in flight at which, and which run alone since.

It locks `chunk` against all else for a moment and rewrites nothing. Workers of the release before are stopped
first: they would hear what is to run alone beside other chunks.

The way down forgets the evidence; what was taken apart stays apart and is heard like any other chunk.

Revision: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("chunk", sa.Column("alone", sa.Boolean(), server_default="false", nullable=False))
    op.create_index("chunk_finished", "chunk", ["model", "finished_at"], postgresql_where=sa.text("state = 'finished'"))
    op.create_index("chunk_suspect", "chunk", ["model"], postgresql_where=sa.text("alone AND state = 'queued'"))
    op.create_table(
        "death",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("part", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("alone", sa.Boolean(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("worker_id", sa.Uuid(), nullable=False),
        sa.Column("epoch_id", sa.Uuid(), nullable=True),
        sa.Column("told_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "stage", "ordinal", "part", "model", "fence"),
    )
    op.create_index("death_alone", "death", ["model", "told_at"], postgresql_where=sa.text("alone"))


def downgrade() -> None:
    op.drop_table("death")
    op.drop_index("chunk_suspect", "chunk")
    op.drop_index("chunk_finished", "chunk")
    op.drop_column("chunk", "alone")
