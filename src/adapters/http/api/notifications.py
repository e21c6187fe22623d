"""Settings and channels of notifications of the signed-in member. Nobody sees those of another."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema, model_validator

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from adapters.http.core.schemas import DisplayName, EnumValue, OneLine, RequestBodyModel, ResponseModel, Timestamp
from adapters.translator import LANGUAGES
from domain.kernel.checks import is_portable_timezone
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import AccountId, ChannelId, MembershipId
from domain.notifications.destinations import NtfyDestination, SealedDestination, TelegramDestination, WebPushDestination
from domain.notifications.model import (
    DEFAULT_OFFLINE_MINUTES,
    MAX_OFFLINE_MINUTES,
    ChannelErrorCode,
    ChannelSendResult,
    NotificationChannelKind,
    NotificationSendOutcome,
    NotificationSettings,
    NotificationTopic,
)
from domain.notifications.settings import NotificationSettingsService, PushKeyService


def _check_timezone(name: str) -> str:
    try:
        if not is_portable_timezone(name):
            raise ValueError(name)
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError("is no IANA time zone. Use a name such as Europe/Berlin") from None
    return name


MinuteOfDay = Annotated[int, Field(ge=0, le=1439)]
TimeZoneName = Annotated[str, Field(min_length=1, max_length=64, examples=["Europe/Berlin"]), AfterValidator(_check_timezone)]


def _check_language(code: str) -> str:
    if code not in LANGUAGES:
        raise ValueError(f"is no language that there are texts in. Choose one of: {', '.join(LANGUAGES)}")
    return code


LanguageCode = Annotated[str, AfterValidator(_check_language), WithJsonSchema({"type": "string", "enum": list(LANGUAGES)})]


class NotificationSettingsRequest(RequestBodyModel):
    topics: list[EnumValue[NotificationTopic]] = Field(
        max_length=len(NotificationTopic), description="What to be notified of. Empty: of nothing."
    )
    mail: bool | None = Field(
        default=None, description="Whether to send mails, beside the channels that you added. Omitted: as it is."
    )
    offline_minutes: Annotated[int, Field(ge=1, le=MAX_OFFLINE_MINUTES)] = Field(
        default=DEFAULT_OFFLINE_MINUTES, description="After so many minutes offline, a notification about the device is sent."
    )
    quiet_from_minute: MinuteOfDay | None = Field(default=None, description="Start of the quiet hours; both or neither.")
    quiet_to_minute: MinuteOfDay | None = Field(default=None, description="Their end, when what waited is sent.")
    timezone: TimeZoneName = "UTC"
    language: LanguageCode = Field(default="en", description="The language of the messages.")

    def to_settings(self) -> NotificationSettings:
        if (self.quiet_from_minute is None) != (self.quiet_to_minute is None):
            raise ValidationFailed.for_field("quietToMinute", "and quietFromMinute go together: set both or neither.")
        return self.to_domain(
            NotificationSettings,
            membership_id=MembershipId(""),
            account_id=AccountId(""),
            topics=tuple(dict.fromkeys(self.topics)),
        )


class NotificationSettingsResponse(ResponseModel):
    topics: list[NotificationTopic]
    mail: bool
    offline_minutes: int
    quiet_from_minute: int | None
    quiet_to_minute: int | None
    timezone: str
    language: str


KeyText = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_-]+=*$")]
ReceiverUrl = Annotated[str, StringConstraints(min_length=1, max_length=2048), OneLine]


class WebPushKeys(RequestBodyModel):
    p256dh: KeyText = Field(alias="p256dh")
    auth: KeyText


class WebPushSubscription(RequestBodyModel):
    """As `PushSubscription.toJSON()` gives it."""

    endpoint: ReceiverUrl = Field(examples=["https://push.example.net/send/q8Zr2Lk5"])
    expiration_time: float | None = Field(default=None, description="The browser sends it; it is not used.")
    keys: WebPushKeys

    def to_destination(self) -> WebPushDestination:
        return WebPushDestination(self.endpoint, self.keys.p256dh, self.keys.auth)


class NtfyTopic(RequestBodyModel):
    url: ReceiverUrl = Field(
        default="https://ntfy.sh", examples=["https://ntfy.sh"], description="The address of the ntfy server."
    )
    topic: Annotated[str, StringConstraints(pattern=r"^[-_A-Za-z0-9]{1,64}$")] = Field(examples=["latch-k3v9x2"])
    token: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,256}$")] | None = Field(
        default=None, description="An access token of the server."
    )

    def to_destination(self) -> NtfyDestination:
        return NtfyDestination(self.url, self.topic, self.token)


class TelegramChat(RequestBodyModel):
    bot_token: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,20}:[A-Za-z0-9_-]{1,128}$")] = Field(
        description="From @BotFather."
    )
    chat_id: Annotated[str, StringConstraints(pattern=r"^(-?[0-9]{1,20}|@[A-Za-z0-9_]{1,64})$")] = Field(examples=["123456789"])

    def to_destination(self) -> TelegramDestination:
        return TelegramDestination(self.bot_token, self.chat_id)


class ChannelCreateRequest(RequestBodyModel):
    name: DisplayName
    web_push: WebPushSubscription | None = None
    ntfy: NtfyTopic | None = None
    telegram: TelegramChat | None = None

    @model_validator(mode="after")
    def _one_destination(self) -> ChannelCreateRequest:
        if sum(one is not None for one in (self.web_push, self.ntfy, self.telegram)) != 1:
            raise ValueError("send exactly one of webPush, ntfy and telegram")
        return self

    def to_destination(self) -> SealedDestination:
        destination = self.web_push or self.ntfy or self.telegram
        assert destination is not None  # noqa: S101 - the validator has checked it
        return destination.to_destination()


class ChannelResponse(ResponseModel):
    channel_id: str
    kind: NotificationChannelKind
    name: str
    target: str = Field(description="The server of a browser or of ntfy, or the chat. Tokens and topics are never shown.")
    created_at: Timestamp
    last_sent_at: Timestamp | None
    last_error: str | None = Field(
        description="Why the last attempt failed; null after one that was accepted. Below Admin, without the cause."
    )
    last_error_code: ChannelErrorCode | None = Field(description="Null too for an error before this field existed.")
    last_error_at: Timestamp | None
    suspended_at: Timestamp | None = Field(
        description="Since when nothing is sent to it: the password was changed, or you signed out everywhere else. Until you "
        "confirm it."
    )


class ChannelTestResponse(ResponseModel):
    sent: bool
    error: str | None = Field(description="Why it was not accepted.")
    error_code: ChannelErrorCode | None

    @classmethod
    def from_domain(cls, result: ChannelSendResult) -> ChannelTestResponse:
        return cls(sent=result.outcome is NotificationSendOutcome.SENT, error=result.error or None, error_code=result.code)


CHANNEL_END = "DELETE /auth/notifications/channels/{channelId}"


class PushKeyResponse(ResponseModel):
    public_key: str = Field(description="For `applicationServerKey` of `PushManager.subscribe`: base64url.")


def notifications_blueprint(notifications: NotificationSettingsService, push_keys: PushKeyService) -> ApiBlueprint:
    bp = ApiBlueprint("notifications", "Notifications")

    @bp.operation("GET /auth/notifications", AllowedCallers.SESSION, "Get your notification settings")
    async def get_notification_settings() -> NotificationSettingsResponse:
        """What you are told, on all your channels. Without settings, nothing."""
        settings, mail = await notifications.get_settings(current_session())
        return NotificationSettingsResponse.of(settings, mail=mail)

    @bp.operation(
        "PUT /auth/notifications",
        AllowedCallers.SESSION,
        "Set your notification settings",
        errors={409: "CHANNEL_LIMIT"},
        authority=AuthorityMade("channel_added", CHANNEL_END, when="mail becomes a channel, or is one no longer"),
    )
    async def update_notification_settings(body: NotificationSettingsRequest) -> NotificationSettingsResponse:
        """Replaces your settings. Requests for approval are told to Owners and Admins only."""
        settings, mail = await notifications.put_settings(current_session(), body.to_settings(), mail=body.mail)
        return NotificationSettingsResponse.of(settings, mail=mail)

    @bp.operation("GET /auth/notifications/push-key", AllowedCallers.SESSION, "Get the key of Web Push")
    async def get_push_key() -> PushKeyResponse:
        """Browsers bind a subscription to it."""
        return PushKeyResponse(public_key=await push_keys.get_public_key())

    @bp.operation("GET /auth/notifications/channels", AllowedCallers.SESSION, "List your channels")
    async def list_channels(query: PageQueryParameters) -> HttpHandlerResult[list[ChannelResponse]]:
        """Where you are told, the oldest first; at most ten."""
        found = await notifications.list_channels(current_session())
        return list_response(found, query, ChannelResponse.of, lambda one: (one.created_ms, one.channel_id))

    @bp.operation("GET /auth/notifications/channels/<channel_id>", AllowedCallers.SESSION, "Get one of your channels")
    async def get_channel(channel_id: ChannelId) -> ChannelResponse:
        """Without its tokens and topics."""
        return ChannelResponse.of(await notifications.get_channel(current_session(), channel_id))

    @bp.operation(
        "POST /auth/notifications/channels",
        AllowedCallers.SESSION,
        "Add a channel",
        status=201,
        idempotent=True,
        errors={409: "CHANNEL_LIMIT"},
        authority=AuthorityMade("channel_added", CHANNEL_END),
    )
    async def create_channel(body: ChannelCreateRequest) -> ChannelResponse:
        """A browser, a topic of ntfy or a chat of Telegram. What you send is stored encrypted and never shown again."""
        return ChannelResponse.of(await notifications.add_channel(current_session(), body.name, body.to_destination()))

    @bp.operation(
        "POST /auth/notifications/channels/<channel_id>/confirm",
        AllowedCallers.SESSION,
        "Confirm a suspended channel",
        authority=AuthorityMade("channel_confirmed", CHANNEL_END),
    )
    async def confirm_channel(channel_id: ChannelId) -> ChannelResponse:
        """A change of the password and a sign-out everywhere else suspend your channels: somebody else may have added one. This
        says that it is yours; what happened meanwhile is not sent."""
        return ChannelResponse.of(await notifications.confirm_channel(current_session(), channel_id))

    @bp.operation(
        "DELETE /auth/notifications/channels/<channel_id>",
        AllowedCallers.SESSION,
        "Delete a channel",
        errors={403: "STEP_UP_REQUIRED"},
    )
    async def delete_channel(channel_id: ChannelId) -> None:
        """What was still owed to it is not sent. It needs a fresh proof that it is you."""
        await notifications.delete_channel(current_session(), channel_id)

    @bp.operation(
        "POST /auth/notifications/channels/<channel_id>/test",
        AllowedCallers.SESSION,
        "Send a test to a channel",
        errors={409: "CHANNEL_SUSPENDED", 429: "LOGIN_THROTTLED"},
    )
    async def send_test_notification(channel_id: ChannelId) -> ChannelTestResponse:
        """At once, also in the quiet hours; at most 20 in an hour, and 60 for all members of the account. Below Admin, a receiver
        that does not accept it is `NOT_ACCEPTED` whatever the cause, after ten seconds."""
        return ChannelTestResponse.from_domain(await notifications.send_test(current_session(), channel_id))

    return bp
