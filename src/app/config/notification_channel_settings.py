"""Settings of notifications; docs/how-to/notifications.md explains them."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from app.config.url_checks import check_public_url


class NotificationChannelSettings(BaseSettings):
    telegram_url: str = Field(
        default="https://api.telegram.org", description="Server of the Telegram Bot API, or of another one that speaks it."
    )

    @field_validator("telegram_url")
    @classmethod
    def _check_telegram_url(cls, value: str) -> str:
        check_public_url(value)
        return value.rstrip("/")
