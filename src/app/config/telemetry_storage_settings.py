"""Settings of where telemetry is kept, and for how long (docs/how-to/clickhouse.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from app.config.checked_setting_types import checked


def _check_clickhouse_url(value: str) -> None:
    from adapters.clickhouse.reading_store import ClickHouseConnectionConfig  # imports httpx

    ClickHouseConnectionConfig.parse(value)


class TelemetryStorageSettings(BaseSettings):
    readings_days: int = Field(default=30, ge=1, le=3_650, description="Days to keep raw telemetry.")
    rollups_days: int = Field(default=365, ge=1, le=3_650, description="Days to keep hourly roll-ups of telemetry.")
    clickhouse_url: Annotated[SecretStr, checked(_check_clickhouse_url)] | None = Field(
        default=None,
        description="https://user:password@host:8443/database: ClickHouse, which gets the raw telemetry that is older.",
    )
    clickhouse_days: int = Field(default=365, ge=1, le=3_650, description="Days to keep raw telemetry in ClickHouse.")

    def check_days(self) -> None:
        """Raises ValueError."""
        if self.rollups_days < self.readings_days:
            raise ValueError("LATCHBOARD_ROLLUPS_DAYS must be at least LATCHBOARD_READINGS_DAYS; raise it or lower the other")
        if self.clickhouse_url is not None and not self.readings_days < self.clickhouse_days <= self.rollups_days:
            raise ValueError(
                "LATCHBOARD_CLICKHOUSE_DAYS must be more than LATCHBOARD_READINGS_DAYS and at most LATCHBOARD_ROLLUPS_DAYS; "
                "change one of them"
            )
