"""A policy for all keys of a tenant. A release that does not know of it leaves it empty."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tenants", sa.Column("policy", sa.Text(), nullable=True))
