"""Constructs the services of notifications: settings and channels, sending, the key of Web Push, approval links."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import structlog

from adapters.crypto.tokens import JwtApprovalLinkCodec
from adapters.delivery.address_guard import AddressGuard
from adapters.notifications.channels import AwaitableHttpCourier, ChannelNotificationSender
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.config.settings import Settings
from app.wiring import adapters as adapter_wiring
from app.wiring.adapters import ServiceAdapters
from app.wiring.sign_in import SignInServices
from domain.approvals.links import ApprovalLinkService
from domain.approvals.service import ApprovalService
from domain.kernel.errors import SecretUnreadable
from domain.notifications.delivery import NotificationDeliveryService
from domain.notifications.ports import PushKeyCodec
from domain.notifications.settings import NotificationSettingsService, PushKeyService

log = structlog.get_logger("notifications")


class VapidKeyCodecOnDemand:
    """Imports the codec with its first call: a key is made once in the life of an installation, and few use Web Push."""

    def generate(self) -> str:
        return self._codec().generate()

    def public_key(self, private_key: str) -> str:
        return self._codec().public_key(private_key)

    def are_browser_keys(self, p256dh: str, auth: str) -> bool:
        return self._codec().are_browser_keys(p256dh, auth)

    def _codec(self) -> PushKeyCodec:
        from adapters.notifications.web_push import VapidKeyCodec

        return VapidKeyCodec()


class NotificationServices:
    """`sender` has a courier of its own: busy webhooks delay no notification."""

    def __init__(
        self,
        uow: SqlUnitOfWork,
        settings: Settings,
        adapters: ServiceAdapters,
        sign_in: SignInServices,
        approvals: ApprovalService[Any],
    ) -> None:
        shared, vault, public_url = adapters.shared_ports(uow), adapters.vault, settings.effective_public_url
        codec, self.link_codec = VapidKeyCodecOnDemand(), JwtApprovalLinkCodec(ring=adapters.key_ring)
        self.push_keys = PushKeyService(uow=uow, vault=vault, codec=codec)
        self.sender = _create_sender(settings, adapters, self.push_keys)
        self.service = NotificationSettingsService(
            **adapters.creating_ports(uow),
            vault=vault,
            sender=self.sender,
            push_keys=codec,
            rejection_reason=adapters.courier.rejection_reason,
            public_rejection_reason=AddressGuard(allow_private=settings.webhook_allow_private).rejection_reason,
            public_url=public_url,
            translator=adapters.translator,
            pause=asyncio.sleep,
        )
        self.delivery = NotificationDeliveryService(
            **shared,
            vault=vault,
            sender=self.sender,
            links=self.link_codec,
            public_url=public_url,
            translator=adapters.translator,
        )
        self.links = ApprovalLinkService(
            **shared,
            codec=self.link_codec,
            approvals=approvals,
            factors=sign_in.factors,
            passkeys=sign_in.passkey_sign_ins,
            requirement=settings.require_second_factor,
        )

    async def start(self) -> None:
        """The key of Web Push is made at the first start."""
        try:
            await self.push_keys.get_private_key()
        except SecretUnreadable:
            log.warning("Web Push does not work: its key was sealed with a key that is not in the key ring. Restore secret_keys")


def _create_sender(settings: Settings, adapters: ServiceAdapters, push_keys: PushKeyService) -> ChannelNotificationSender:
    return ChannelNotificationSender(
        clock=adapters.clock,
        mailer=adapters.mailer,
        http=AwaitableHttpCourier(create=partial(adapter_wiring.create_courier, settings, adapters.clock)),
        push_key=push_keys.get_private_key,
        contact=f"mailto:{settings.smtp_from}" if settings.smtp_from else settings.effective_public_url,
        telegram_url=settings.telegram_url,
    )
