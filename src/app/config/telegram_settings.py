"""The setting of notifications by Telegram; docs/how-to/notifications.md explains it."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from app.config.checked_setting_types import PublicUrl


class TelegramServerSettings(BaseSettings):
    telegram_url: PublicUrl = Field(
        default="https://api.telegram.org", description="Server of the Telegram Bot API, or of another one that speaks it."
    )
