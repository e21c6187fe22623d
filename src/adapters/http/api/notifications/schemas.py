"""Request and response models of notifications by mail."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field

from adapters.http.core.schemas import EnumValue, RequestBody, ResponseModel
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import AccountId, MembershipId
from domain.notifications.model import (
    DEFAULT_OFFLINE_MINUTES,
    MAX_OFFLINE_MINUTES,
    NotificationSettings,
    NotificationTopic,
)


def _check_timezone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError("is no IANA time zone. Use a name such as Europe/Berlin") from None
    return name


MinuteOfDay = Annotated[int, Field(ge=0, le=1439)]
TimeZoneName = Annotated[str, Field(min_length=1, max_length=64, examples=["Europe/Berlin"]), AfterValidator(_check_timezone)]


class NotificationSettingsRequest(RequestBody):
    topics: list[EnumValue[NotificationTopic]] = Field(max_length=len(NotificationTopic), description="Empty: no mail.")
    offline_minutes: Annotated[int, Field(ge=1, le=MAX_OFFLINE_MINUTES)] = Field(
        default=DEFAULT_OFFLINE_MINUTES, description="A device that is offline for this long is told."
    )
    quiet_from_minute: MinuteOfDay | None = Field(default=None, description="Start of the quiet hours; both or neither.")
    quiet_to_minute: MinuteOfDay | None = Field(default=None, description="Their end, when the mails that waited are sent.")
    timezone: TimeZoneName = "UTC"

    def to_settings(self) -> NotificationSettings:
        if (self.quiet_from_minute is None) != (self.quiet_to_minute is None):
            raise ValidationFailed.for_field("quietToMinute", "and quietFromMinute go together: set both or neither.")
        return NotificationSettings(
            MembershipId(""),
            AccountId(""),
            tuple(dict.fromkeys(self.topics)),
            self.offline_minutes,
            self.quiet_from_minute,
            self.quiet_to_minute,
            self.timezone,
        )


class NotificationSettingsResponse(ResponseModel):
    topics: list[NotificationTopic]
    offline_minutes: int
    quiet_from_minute: int | None
    quiet_to_minute: int | None
    timezone: str

    @classmethod
    def from_domain(cls, settings: NotificationSettings) -> NotificationSettingsResponse:
        return cls(
            **{name: getattr(settings, name) for name in cls.model_fields if name != "topics"}, topics=list(settings.topics)
        )
