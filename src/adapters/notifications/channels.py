"""Sends messages through their channels, all of a batch at once. HTTP goes through the courier of the webhooks, with its address
guard, its deadline and no redirects; mail through the mail server.

The HTTP request of a message for each kind of channel, and what its response means.

The webhooks' courier with one awaited call for each request.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Sequence

import structlog

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
from domain.notifications.model import (
    SEND_TIMEOUT_S,
    ChannelErrorCode,
    ChannelSendResult,
    NotificationMessage,
    NotificationSendOutcome,
)
from domain.notifications.model import ChannelErrorCode as Code
from domain.webhooks.ports import Courier, OutboundHttpRequest, OutboundHttpResponse

JSON_HEADERS = (("Content-Type", "application/json"), ("User-Agent", "Latchboard"))
MAX_TEXT = 3_000
"""Characters; ntfy takes 4,096 bytes, Telegram 4,096 characters."""
NTFY_URGENT, NTFY_DEFAULT = 4, 3

TRY_AGAIN = frozenset({408, 425, 429})
"""Of the responses from 400 to 499, those after which the same request may be accepted later."""


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
        return ChannelSendResult(NotificationSendOutcome.FAILED, Code.NO_RESPONSE, response.error or "No response.")
    if 200 <= status < 300:
        return ChannelSendResult(NotificationSendOutcome.SENT)
    if status in gone:
        error = f"The receiver answered {status}: this destination does not exist any more."
        return ChannelSendResult(NotificationSendOutcome.GONE, Code.GONE, error)
    if 400 <= status < 500 and status not in TRY_AGAIN:
        return ChannelSendResult(
            NotificationSendOutcome.REFUSED, Code.REFUSED, f"The receiver refused it with {status}. Check token, topic and chat."
        )
    return ChannelSendResult(
        NotificationSendOutcome.FAILED, Code.RECEIVER_ERROR, f"The receiver answered {status}.", response.retry_after_s
    )


def _encode(body: object) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


EXTRA_S = 5.0
"""Beyond the deadline of a request; a courier that does not answer then has failed."""


class AwaitableHttpCourier:
    """One call for each request. `create` makes the courier with the first request: without channels there is none."""

    def __init__(self, create: Callable[[], Courier]) -> None:
        self._create = create
        self._courier: Courier | None = None
        self._tickets = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[OutboundHttpResponse]] = {}

    async def send(self, request: OutboundHttpRequest) -> OutboundHttpResponse:
        if self._courier is None:
            self._courier = self._create()
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
