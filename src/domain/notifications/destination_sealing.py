"""Destinations are stored sealed."""

from __future__ import annotations

import json
from dataclasses import asdict

from domain.kernel.errors import SecretUnreadable
from domain.kernel.ids import ChannelId
from domain.kernel.ports import Vault
from domain.notifications.destination_addresses import _TYPES, Destination, MailDestination, SealedDestination
from domain.notifications.model import NotificationChannel


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
