"""Sends messages through their channels, all of a batch at once: mail through the mail server, all others with one HTTP request.

HTTP goes through the courier of the webhooks, with its address guard, its deadline and no redirects.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import field

import structlog

from domain.accounts.ports import Mailer
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import DomainError
from domain.notifications.destinations import (
    Destination,
    MailDestination,
    NtfyDestination,
    TelegramDestination,
    WebPushDestination,
)
from domain.notifications.model import (
    SEND_TIMEOUT_S,
    ChannelErrorCode,
    ChannelSendResult,
    NotificationMessage,
    NotificationSendOutcome,
)
from domain.webhooks.ports import Courier, OutboundHttpRequest, OutboundHttpResponse

MAX_PARALLEL = 20
JSON_HEADERS = (("Content-Type", "application/json"), ("User-Agent", "Latchboard"))
MAX_TEXT = 3_000
"""Characters; ntfy takes 4,096 bytes, Telegram 4,096 characters."""
NTFY_URGENT, NTFY_DEFAULT = 4, 3
TRY_AGAIN = frozenset({408, 425, 429})
"""Of the responses from 400 to 499, those after which the same request may be accepted later."""
EXTRA_S = 5.0
"""Beyond the deadline of a request; a courier that does not answer then has failed."""

log = structlog.get_logger("notifications")


@service
class ChannelNotificationSender:
    """Implements `NotificationSender`. `push_key`: the private key of VAPID. `contact`: as for `push_request`."""

    clock: Clock
    mailer: Mailer
    http: AwaitableHttpCourier
    push_key: Callable[[], Awaitable[str]]
    contact: str
    telegram_url: str

    async def send_many(self, outgoing: Sequence[tuple[Destination, NotificationMessage]]) -> Sequence[ChannelSendResult]:
        slots = asyncio.Semaphore(MAX_PARALLEL)
        return await asyncio.gather(*(self._send(slots, to, message) for to, message in outgoing))

    async def close(self) -> None:
        await self.http.close()

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
                await self.mailer.send(address, message.title, f"{message.text}\n\n{message.link}\n\n{message.mail_footer}\n")
                return ChannelSendResult(NotificationSendOutcome.SENT)
            case NtfyDestination():
                return result_of(await self.http.send(ntfy_request(to, message)))
            case TelegramDestination():
                return result_of(await self.http.send(telegram_request(self.telegram_url, to, message)))
            case WebPushDestination():
                from adapters.notifications.web_push import GONE, push_request  # takes 2 MiB

                key, now_ms = await self.push_key(), self.clock.now_ms()
                request = push_request(to, message, private_key=key, contact=self.contact, now_ms=now_ms)
                return result_of(await self.http.send(request), gone=GONE)


@service
class AwaitableHttpCourier:
    """The webhooks' courier with one awaited call for each request. `create` makes it with the first request: without channels
    there is none."""

    create: Callable[[], Courier]
    _courier: Courier | None = field(default=None, init=False)
    _tickets: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)
    _waiting: dict[int, asyncio.Future[OutboundHttpResponse]] = field(default_factory=dict, init=False)

    async def send(self, request: OutboundHttpRequest) -> OutboundHttpResponse:
        if self._courier is None:
            self._courier = self.create()
            self._courier.on_responses(self._on_responses)
        ticket = next(self._tickets)
        waiting: asyncio.Future[OutboundHttpResponse] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = waiting
        try:
            self._courier.send([(ticket, request)])
            async with asyncio.timeout(request.deadline_s + EXTRA_S):
                return await waiting
        except TimeoutError:
            self._courier.cancel([ticket])
            return OutboundHttpResponse(None, "No response.", b"", 0)
        finally:
            self._waiting.pop(ticket, None)

    async def close(self) -> None:
        if self._courier is not None:
            await self._courier.close()

    def _on_responses(self, responses: Sequence[tuple[int, OutboundHttpResponse]]) -> None:
        for ticket, response in responses:
            waiting = self._waiting.get(ticket)
            if waiting is not None and not waiting.done():
                waiting.set_result(response)


def ntfy_request(to: NtfyDestination, message: NotificationMessage) -> OutboundHttpRequest:
    """JSON to the root of the server, https://docs.ntfy.sh/publish/#publish-as-json: headers could not hold every name."""
    body = {
        "topic": to.topic,
        "title": message.title,
        "message": message.text[:MAX_TEXT],
        "click": message.link,
        "priority": NTFY_URGENT if message.is_urgent else NTFY_DEFAULT,
    }
    access = () if to.token is None else (("Authorization", f"Bearer {to.token}"),)
    return OutboundHttpRequest(f"{to.url.rstrip('/')}/", (*JSON_HEADERS, *access), _encode(body), SEND_TIMEOUT_S)


def telegram_request(base_url: str, to: TelegramDestination, message: NotificationMessage) -> OutboundHttpRequest:
    """`sendMessage` of the Bot API, without a preview: Telegram's servers would open the link."""
    text = f"{message.title}\n\n{message.text[:MAX_TEXT]}\n\n{message.link}"
    body = {"chat_id": to.chat_id, "text": text, "link_preview_options": {"is_disabled": True}}
    return OutboundHttpRequest(
        f"{base_url.rstrip('/')}/bot{to.bot_token}/sendMessage", JSON_HEADERS, _encode(body), SEND_TIMEOUT_S
    )


def result_of(response: OutboundHttpResponse, *, gone: frozenset[int] = frozenset()) -> ChannelSendResult:
    """`gone`: the statuses by which the receiver says that the destination does not exist any more."""
    status = response.status
    if status is None:
        return ChannelSendResult(NotificationSendOutcome.FAILED, ChannelErrorCode.NO_RESPONSE, response.error or "No response.")
    if 200 <= status < 300:
        return ChannelSendResult(NotificationSendOutcome.SENT)
    if status in gone:
        error = f"The receiver answered {status}: this destination does not exist any more."
        return ChannelSendResult(NotificationSendOutcome.GONE, ChannelErrorCode.GONE, error)
    if 400 <= status < 500 and status not in TRY_AGAIN:
        return ChannelSendResult(
            NotificationSendOutcome.REFUSED,
            ChannelErrorCode.REFUSED,
            f"The receiver refused it with {status}. Check token, topic and chat.",
        )
    return ChannelSendResult(
        NotificationSendOutcome.FAILED,
        ChannelErrorCode.RECEIVER_ERROR,
        f"The receiver answered {status}.",
        response.retry_after_s,
    )


def _encode(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()
