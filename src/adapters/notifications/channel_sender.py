"""Sends messages through their channels, all of a batch at once. HTTP goes through the courier of the webhooks, with its address
guard, its deadline and no redirects; mail through the mail server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from adapters.notifications.awaitable_http_courier import AwaitableHttpCourier
from adapters.notifications.channel_requests import ntfy_request, result_of, telegram_request
from domain.accounts.ports import Mailer
from domain.kernel.clock import Clock
from domain.kernel.errors import DomainError
from domain.notifications.destinations import (
    Destination,
    MailDestination,
    NtfyDestination,
    TelegramDestination,
    WebPushDestination,
)
from domain.notifications.model import ChannelErrorCode, ChannelSendResult, NotificationMessage, NotificationSendOutcome
from domain.webhooks.ports import Courier

MAX_PARALLEL = 20

log = structlog.get_logger("notifications")


class ChannelNotificationSender:
    """Implements `NotificationSender`."""

    def __init__(
        self,
        *,
        clock: Clock,
        mailer: Mailer,
        create_courier: Callable[[], Courier],
        push_key: Callable[[], Awaitable[str]],
        contact: str,
        telegram_url: str,
    ) -> None:
        """`push_key`: the private key of VAPID. `contact`: as for `push_request`."""
        self._clock = clock
        self._mailer = mailer
        self._http = AwaitableHttpCourier(create_courier)
        self._push_key = push_key
        self._contact = contact
        self._telegram_url = telegram_url

    async def send_many(self, outgoing: Sequence[tuple[Destination, NotificationMessage]]) -> Sequence[ChannelSendResult]:
        slots = asyncio.Semaphore(MAX_PARALLEL)
        return await asyncio.gather(*(self._send(slots, to, message) for to, message in outgoing))

    async def close(self) -> None:
        await self._http.close()

    async def _send(self, slots: asyncio.Semaphore, to: Destination, message: NotificationMessage) -> ChannelSendResult:
        async with slots:
            try:
                return await self._send_one(to, message)
            except DomainError as error:
                code = ChannelErrorCode.MAIL_FAILED if isinstance(to, MailDestination) else ChannelErrorCode.INTERNAL_ERROR
                return ChannelSendResult(NotificationSendOutcome.FAILED, code, error.message)
            except Exception as error:
                log.exception("a notification could not be sent", channel=type(to).__name__)
                return ChannelSendResult(
                    NotificationSendOutcome.FAILED,
                    ChannelErrorCode.INTERNAL_ERROR,
                    f"It could not be sent: {type(error).__name__}.",
                )

    async def _send_one(self, to: Destination, message: NotificationMessage) -> ChannelSendResult:
        match to:
            case MailDestination(address=address):
                await self._mailer.send(address, message.title, f"{message.text}\n\n{message.link}\n\n{message.mail_footer}\n")
                return ChannelSendResult(NotificationSendOutcome.SENT)
            case NtfyDestination():
                return result_of(await self._http.send(ntfy_request(to, message)))
            case TelegramDestination():
                return result_of(await self._http.send(telegram_request(self._telegram_url, to, message)))
            case WebPushDestination():
                from adapters.notifications.web_push import GONE, push_request  # takes 2 MiB

                key, now_ms = await self._push_key(), self._clock.now_ms()
                request = push_request(to, message, private_key=key, contact=self._contact, now_ms=now_ms)
                return result_of(await self._http.send(request), gone=GONE)
