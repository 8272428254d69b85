"""Turns and shares: who is served next at a model.

Guarantee: of no more rows than jobs are open: a job's turns go when it ends, a tenant's share with the last of them.
"""

from uuid import UUID

from sqlalchemy import BigInteger, Column, Index, SmallInteger
from sqlmodel import Field, SQLModel

from services.models.columns import text


class Share(SQLModel, table=True):
    """What a tenant's jobs of one priority class have been served by a model, in calls: those under way included.

    `served` and `start_tag` are the finish and the start tag of start-time fair queueing: what the tenant had been
    served before and after the last chunk that it got in its turn, put forward to where the others stood then.
    """

    model: str = Field(sa_column=Column(text().type, primary_key=True))
    priority: int = Field(sa_column=Column(SmallInteger, primary_key=True, autoincrement=False))
    tenant_id: UUID = Field(primary_key=True, foreign_key="tenant.id")
    served: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
    start_tag: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))


class Turn(SQLModel, table=True):
    """The same of an open job among those of its tenant and class. Without this row the model does not see the job."""

    __table_args__ = (Index("turn_of_job", "job_id"),)

    model: str = Field(sa_column=Column(text().type, primary_key=True))
    job_id: UUID = Field(primary_key=True, foreign_key="job.id")
    priority: int = Field(sa_column=Column(SmallInteger, nullable=False))
    tenant_id: UUID
    served: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
    start_tag: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))
