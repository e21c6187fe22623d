"""How long rows are kept, from the settings."""

from __future__ import annotations

from app.config.settings import Settings
from domain.telemetry.retention import RetentionPeriods


def retention_periods(settings: Settings) -> RetentionPeriods:
    return RetentionPeriods(
        readings=settings.readings_days,
        rollups=settings.rollups_days,
        events=settings.events_days,
        deliveries=settings.deliveries_days,
    )
