"""The HTTP request of a message for each kind of channel, and what its response means."""

from __future__ import annotations

import json

from domain.notifications.destinations import NtfyDestination, TelegramDestination
from domain.notifications.model import SEND_TIMEOUT_S, ChannelSendResult, NotificationMessage, NotificationSendOutcome
from domain.notifications.model import ChannelErrorCode as Code
from domain.webhooks.ports import OutboundHttpRequest, OutboundHttpResponse

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
