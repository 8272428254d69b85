"""Shares: whose turn it is at each model, and what a chunk costs.

It locks `chunk` against all else while its open rows are indexed anew, and rewrites nothing. API and workers are
stopped meanwhile: a job that an older API queues later has no place in line. Jobs that are open get theirs, and
their items count as one call each.

The way down forgets who was served how much.

Revision: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TAGS = ("served", "start_tag")
OPEN = sa.text("state IN ('waiting', 'queued', 'running')")


def upgrade() -> None:
    op.add_column("chunk", sa.Column("calls_per_item", sa.SmallInteger(), server_default="1", nullable=False))
    op.alter_column("chunk", "calls_per_item", server_default=None)
    # A job's first queued chunk on a model is found at once by this index, and was by `chunk_claimable`.
    op.drop_index("chunk_open", "chunk")
    op.create_index("chunk_open", "chunk", ["job_id", "model", "state", "ordinal", "part"], postgresql_where=OPEN)
    op.create_table(
        "share",
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), server_default="0", nullable=False) for name in TAGS),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"]),
        sa.PrimaryKeyConstraint("model", "priority", "tenant_id"),
    )
    op.create_table(
        "turn",
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), server_default="0", nullable=False) for name in TAGS),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"]),
        sa.PrimaryKeyConstraint("model", "job_id"),
    )
    op.create_index("turn_of_job", "turn", ["job_id"])
    op.execute(
        """
        INSERT INTO turn (model, job_id, priority, tenant_id)
        SELECT DISTINCT chunk.model, job.id, job.priority, job.tenant_id
        FROM chunk JOIN job ON job.id = chunk.job_id
        WHERE chunk.state IN ('waiting', 'queued', 'running') AND chunk.model <> 'cpu'
        """
    )


def downgrade() -> None:
    op.drop_table("turn")
    op.drop_table("share")
    op.drop_index("chunk_open", "chunk")
    op.create_index("chunk_open", "chunk", ["job_id"], postgresql_where=OPEN)
    op.drop_column("chunk", "calls_per_item")
