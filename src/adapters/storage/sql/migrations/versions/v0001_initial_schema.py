"""The first schema."""

from __future__ import annotations

from adapters.storage.sql.migrations.revision_0001 import commands_and_permissions, events_and_telemetry, fleet, identity

revision = "0001"
down_revision = None


def upgrade() -> None:
    identity.create()
    fleet.create()
    commands_and_permissions.create()
    events_and_telemetry.create()
