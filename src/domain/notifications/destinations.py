"""Destinations of channels. A destination is a secret as a whole: whoever knows a topic, a token or a push endpoint can send to
it or read along. It is stored sealed and bound to its channel, and never leaves the service again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

from domain.kernel.errors import SecretUnreadable, ValidationFailed
from domain.kernel.ids import ChannelId
from domain.kernel.ports import Vault
from domain.notifications.model import NotificationChannel, NotificationChannelKind

UrlCheck = Callable[[str], str | None]
"""Why nothing can be sent to a URL, or None."""
KeyCheck = Callable[[str, str], bool]
"""Whether these can be the `p256dh` and `auth` of a browser's subscription."""


@dataclass(frozen=True, slots=True)
class MailDestination:
    address: str


@dataclass(frozen=True, slots=True)
class WebPushDestination:
    """A subscription of a browser (W3C Push API). `p256dh` and `auth`: base64url, as the browser gives them."""

    endpoint: str = field(repr=False)
    p256dh: str = field(repr=False)
    auth: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NtfyDestination:
    url: str
    topic: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TelegramDestination:
    bot_token: str = field(repr=False)
    chat_id: str


SealedDestination = WebPushDestination | NtfyDestination | TelegramDestination
Destination = MailDestination | SealedDestination
_KINDS: dict[type[SealedDestination], NotificationChannelKind] = {
    WebPushDestination: NotificationChannelKind.WEB_PUSH,
    NtfyDestination: NotificationChannelKind.NTFY,
    TelegramDestination: NotificationChannelKind.TELEGRAM,
}
_TYPES = {kind: made for made, kind in _KINDS.items()}


def kind_of(destination: SealedDestination) -> NotificationChannelKind:
    return _KINDS[type(destination)]


def describe(destination: SealedDestination) -> str:
    """What its owner sees of it."""
    match destination:
        case WebPushDestination(endpoint=url) | NtfyDestination(url=url):
            return urlsplit(url).hostname or ""
        case TelegramDestination(chat_id=chat_id):
            return chat_id


def check_destination(
    destination: SealedDestination, rejection_reason: UrlCheck, push_rejection_reason: UrlCheck, are_browser_keys: KeyCheck
) -> None:
    """An ntfy server is named without a path, so that no member chooses one on a server of the operator's own network.
    `push_rejection_reason`: for Web Push, whose endpoints have paths.

    Raises ValidationFailed for a URL that nothing can be sent to, and for keys that no browser makes."""
    match destination:
        case WebPushDestination(endpoint=url, p256dh=p256dh, auth=auth):
            name, rejection_reason = "webPush.endpoint", push_rejection_reason
            if not are_browser_keys(p256dh, auth):
                raise ValidationFailed.for_field("webPush.keys", "are not those that PushSubscription.toJSON() gives.")
        case NtfyDestination(url=url):
            name = "ntfy.url"
            if urlsplit(url).path not in ("", "/") or "?" in url or "#" in url:
                raise ValidationFailed.for_field(name, "must name the server alone, such as https://ntfy.sh.")
        case TelegramDestination():
            return  # the operator's setting names the server
    if (reason := rejection_reason(url)) is not None:
        raise ValidationFailed.for_field(name, reason)


def seal_destination(vault: Vault, channel_id: ChannelId, destination: SealedDestination) -> bytes:
    return vault.seal(json.dumps(asdict(destination)), channel_id)


def open_destination(vault: Vault, channel: NotificationChannel, address: str) -> Destination:
    """`address`: the user's present mail address. Raises SecretUnreadable."""
    if channel.sealed is None:
        return MailDestination(address)
    try:
        return _TYPES[channel.kind](**json.loads(vault.open(channel.sealed, channel.channel_id)))
    except (TypeError, ValueError):
        raise SecretUnreadable("The stored destination cannot be read. Delete the channel and add it again.") from None
