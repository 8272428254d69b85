"""Retries, deletion and retention: links between jobs, jobs that are being removed, events that take deliveries along.

It locks `job`, `chunk`, `event`, `delivery` and `delivery_attempt` against writing until it commits, while indexes are
made and the keys of the deliveries are checked, and rewrites nothing.

The way down removes what is left of deleted jobs, which would be there again; retries stay and forget what they retry.

Revision: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

OF_ITEMS = ("trace", "opinion", "verdict", "reappraisal", "score", "assessment", "item")
KEYS = (("delivery", "event_id", "event"), ("delivery_attempt", "delivery_id", "delivery"))


def upgrade() -> None:
    op.add_column("job", sa.Column("retry_of", sa.Uuid(), nullable=True))
    op.create_foreign_key("job_retry_of_fkey", "job", "job", ["retry_of"], ["id"], ondelete="SET NULL")
    op.add_column("job", sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True))
    for column in ("reread_of", "retry_of"):
        op.create_index(f"job_{column}", "job", [column], postgresql_where=sa.text(f"{column} IS NOT NULL"))
    op.create_index("job_deleted", "job", ["deleted_at"], postgresql_where=sa.text("deleted_at IS NOT NULL"))
    op.create_index("job_ended", "job", ["ended_at", "id"], postgresql_where=sa.text("deleted_at IS NULL"))
    op.create_index("job_of_day", "job", ["day"])
    op.create_index("chunk_reread", "chunk", ["job_id"], postgresql_where=sa.text("stage = 'reread'"))
    for table, column, target in KEYS:
        _replace_key(table, column, target, "CASCADE")


def downgrade() -> None:
    for table in (*OF_ITEMS, "chunk"):
        op.execute(f"DELETE FROM {table} WHERE job_id IN (SELECT id FROM job WHERE deleted_at IS NOT NULL)")
    op.execute("DELETE FROM job WHERE deleted_at IS NOT NULL")
    for table, column, target in KEYS:
        _replace_key(table, column, target, None)
    op.drop_index("chunk_reread", "chunk")
    for index in ("job_of_day", "job_ended", "job_deleted", "job_retry_of", "job_reread_of"):
        op.drop_index(index, "job")
    op.drop_column("job", "deleted_at")
    op.drop_column("job", "retry_of")


def _replace_key(table: str, column: str, target: str, ondelete: str | None) -> None:
    name = f"{table}_{column}_fkey"
    op.drop_constraint(name, table, type_="foreignkey")
    op.create_foreign_key(name, table, target, [column], ["id"], ondelete=ondelete)
