"""Notifications by mail: each member's own settings."""

from __future__ import annotations

from adapters.http.api.notifications.schemas import NotificationSettingsRequest, NotificationSettingsResponse
from adapters.http.core.auth import RequiredAccess, current_session
from adapters.http.core.operation import ApiBlueprint, operation
from domain.notifications.service import NotificationService


def notifications_blueprint(notifications: NotificationService) -> ApiBlueprint:
    bp = ApiBlueprint("notifications", "Notifications")

    @operation(bp, "GET", "/auth/notifications", RequiredAccess.SESSION, "Get your mail notifications")
    async def get_notification_settings() -> NotificationSettingsResponse:
        """What you are told by mail. Without settings, nothing."""
        return NotificationSettingsResponse.from_domain(await notifications.get_settings(current_session()))

    @operation(bp, "PUT", "/auth/notifications", RequiredAccess.SESSION, "Set your mail notifications")
    async def update_notification_settings(body: NotificationSettingsRequest) -> NotificationSettingsResponse:
        """Replaces your settings. Mails about approvals go to Owners and Admins only."""
        return NotificationSettingsResponse.from_domain(await notifications.put_settings(current_session(), body.to_settings()))

    return bp
