"""Notifications: the settings and channels of the signed-in member. Nobody sees those of another."""

from __future__ import annotations

from adapters.http.api.notifications import schemas as schema
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from domain.kernel.ids import ChannelId
from domain.notifications.settings import NotificationSettingsService, PushKeyService


def notifications_blueprint(notifications: NotificationSettingsService, push_keys: PushKeyService) -> ApiBlueprint:
    bp = ApiBlueprint("notifications", "Notifications")

    @bp.operation("GET /auth/notifications", AllowedCallers.SESSION, "Get your notification settings")
    async def get_notification_settings() -> schema.NotificationSettingsResponse:
        """What you are told, on all your channels. Without settings, nothing."""
        return schema.NotificationSettingsResponse.from_domain(await notifications.get_settings(current_session()))

    @bp.operation(
        "PUT /auth/notifications", AllowedCallers.SESSION, "Set your notification settings", errors={409: "CHANNEL_LIMIT"}
    )
    async def update_notification_settings(body: schema.NotificationSettingsRequest) -> schema.NotificationSettingsResponse:
        """Replaces your settings. Requests for approval are told to Owners and Admins only."""
        return schema.NotificationSettingsResponse.from_domain(
            await notifications.put_settings(current_session(), body.to_settings())
        )

    @bp.operation("GET /auth/notifications/push-key", AllowedCallers.SESSION, "Get the key of Web Push")
    async def get_push_key() -> schema.PushKeyResponse:
        """Browsers bind a subscription to it."""
        return schema.PushKeyResponse(public_key=await push_keys.get_public_key())

    @bp.operation("GET /auth/notifications/channels", AllowedCallers.SESSION, "List your channels")
    async def list_channels() -> list[schema.ChannelResponse]:
        """Where you are told, the oldest first; at most ten."""
        return [schema.ChannelResponse.of(one) for one in await notifications.list_channels(current_session())]

    @bp.operation(
        "POST /auth/notifications/channels",
        AllowedCallers.SESSION,
        "Add a channel",
        status=201,
        idempotent=True,
        errors={409: "CHANNEL_LIMIT"},
    )
    async def create_channel(body: schema.ChannelCreateRequest) -> schema.ChannelResponse:
        """A browser, a topic of ntfy or a chat of Telegram. What you send is stored encrypted and never shown again."""
        added = await notifications.add_channel(current_session(), body.name, body.to_destination())
        return schema.ChannelResponse.of(added)

    @bp.operation("DELETE /auth/notifications/channels/<channel_id>", AllowedCallers.SESSION, "Delete a channel")
    async def delete_channel(channel_id: ChannelId) -> None:
        """What was still owed to it is not sent."""
        await notifications.delete_channel(current_session(), channel_id)

    @bp.operation(
        "POST /auth/notifications/channels/<channel_id>/test",
        AllowedCallers.SESSION,
        "Send a test to a channel",
        errors={429: "LOGIN_THROTTLED"},
    )
    async def send_test_notification(channel_id: ChannelId) -> schema.ChannelTestResponse:
        """At once, also in the quiet hours; at most 20 in an hour."""
        return schema.ChannelTestResponse.from_domain(await notifications.send_test(current_session(), channel_id))

    return bp
