"""Telemetry roll-ups, and tombstones of deleted devices whose readings are not deleted yet.

Marks every hour that has readings as due, for the roll-up worker. A recursive query finds the hours with one index seek each,
from hour to hour and from device to device, without reading the readings.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MARK_ALL_HOURS_DUE = """
INSERT INTO rollups_due (device_no, hour, marked_ms)
WITH RECURSIVE device (device_no) AS (
  SELECT (SELECT min(device_no) FROM readings)
  UNION ALL
  SELECT (SELECT min(device_no) FROM readings WHERE device_no > device.device_no) FROM device WHERE device.device_no IS NOT NULL
), stretch (device_no, hour) AS (
  SELECT device.device_no, (SELECT min(r.ts) / 3600000 FROM readings AS r WHERE r.device_no = device.device_no)
  FROM device WHERE device.device_no IS NOT NULL
  UNION ALL
  SELECT stretch.device_no, (
    SELECT min(r.ts) / 3600000 FROM readings AS r
    WHERE r.device_no = stretch.device_no AND r.ts >= (stretch.hour + 1) * 3600000
  )
  FROM stretch WHERE stretch.hour IS NOT NULL
)
SELECT device_no, hour, 0 FROM stretch WHERE hour IS NOT NULL
"""


def upgrade() -> None:
    op.create_table(
        "rollups",
        sa.Column("device_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("hour", NUMBER, autoincrement=False, nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("device_no", "hour", name="pk_rollups"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rollups_due",
        sa.Column("device_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("hour", NUMBER, autoincrement=False, nullable=False),
        sa.Column("marked_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("device_no", "hour", name="pk_rollups_due"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_rollups_due__hour_device_no", "rollups_due", ["hour", "device_no"], unique=False)
    op.create_table(
        "graves",
        sa.Column("device_no", NUMBER, autoincrement=False, nullable=False),
        sa.Column("deleted_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("device_no", name="pk_graves"),
    )
    op.execute(MARK_ALL_HOURS_DUE)
