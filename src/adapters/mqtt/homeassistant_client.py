"""A connection to the broker of another program (Home Assistant's), kept apart from the one that devices use.

Our own messages do not come back (`noLocal`), and commands are taken through a shared subscription, so that what is retained on
a command topic is never taken for one (MQTT 5, 4.8.2). The session ends with the connection: a command that was sent while we
were away is lost, never late.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiomqtt
from paho.mqtt.subscribeoptions import SubscribeOptions

from domain.kernel.errors import Unavailable

TIMEOUT_S = 10.0
DISCONNECT_TIMEOUT_S = 1.0
"""The service must have stopped within five seconds, whatever a broker does."""
MAX_QUEUED_MESSAGES = 10_000
"""Messages not yet read; further ones are dropped by the client. Discovery messages of an earlier run come all at once."""
MAX_INFLIGHT_PUBLISHES = 64
"""Publishes under way, which the bridge's loop bounds; aiomqtt warns of more."""


@dataclass(frozen=True, slots=True)
class HomeAssistantBrokerSettings:
    """A broker: where it is, and who we are there."""

    host: str
    port: int
    username: str | None
    password: str | None = field(repr=False)
    tls: bool = False


@dataclass(frozen=True, slots=True)
class BridgeMessage:
    topic: str
    payload: bytes
    retain: bool


class BridgeConnection:
    """One connection. Its methods raise Unavailable when it is lost."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self._client = client

    async def publish(self, topic: str, payload: str) -> None:
        """Retained; an empty payload clears it. Returns when the broker has it."""
        try:
            await self._client.publish(topic, payload, qos=1, retain=True, timeout=TIMEOUT_S)
        except aiomqtt.MqttError as error:
            raise _unavailable(error) from None

    async def messages(self) -> AsyncIterator[BridgeMessage]:
        try:
            async for message in self._client.messages:
                payload = message.payload if isinstance(message.payload, bytes) else b""
                yield BridgeMessage(str(message.topic), payload, bool(message.retain))
        except aiomqtt.MqttError as error:
            raise _unavailable(error) from None

    async def subscribe(self, filters: Sequence[str], options: SubscribeOptions) -> None:
        """Raises Unavailable where the broker forbids it."""
        codes: Sequence[Any] = await self._client.subscribe([(each, options) for each in filters], timeout=TIMEOUT_S)
        refused = [each for each, code in zip(filters, codes, strict=True) if getattr(code, "value", code) >= 0x80]
        if refused:
            raise _unavailable(f"it forbids to subscribe to {', '.join(refused)}")


class BridgeClient:
    def __init__(self, peer: HomeAssistantBrokerSettings) -> None:
        self._settings = peer

    @asynccontextmanager
    async def connect(
        self, listen: Sequence[str], commands: str | None = None, status: str | None = None
    ) -> AsyncIterator[BridgeConnection]:
        """`status` says `online` while this lasts and `offline` afterwards, whatever ends it. Raises Unavailable."""
        client = self._new_client(status)
        try:
            async with client:
                line = BridgeConnection(client)
                await line.subscribe(listen, _NO_LOCAL)
                if commands is not None:
                    await line.subscribe([f"$share/latchboard/{commands}"], _SHARED_SUBSCRIPTION)
                if status is not None:
                    await line.publish(status, "online")
                try:
                    yield line
                finally:
                    client.timeout = DISCONNECT_TIMEOUT_S
                    await _publish_offline(line, status)
        except aiomqtt.MqttError as error:
            raise _unavailable(error) from None

    def _new_client(self, status: str | None) -> aiomqtt.Client:
        peer = self._settings
        client = aiomqtt.Client(
            peer.host,
            peer.port,
            username=peer.username,
            password=peer.password,
            protocol=aiomqtt.ProtocolVersion.V5,
            will=None if status is None else aiomqtt.Will(status, "offline", qos=1, retain=True),
            tls_context=ssl.create_default_context() if peer.tls else None,
            timeout=TIMEOUT_S,
            keepalive=30,
            max_queued_incoming_messages=MAX_QUEUED_MESSAGES,
        )
        client.pending_calls_threshold = MAX_INFLIGHT_PUBLISHES
        client._client.connect_timeout = DISCONNECT_TIMEOUT_S * 3  # it blocks a thread that the end of the process waits for
        return client


async def _publish_offline(line: BridgeConnection, status: str | None) -> None:
    """As far as it can be said: where the connection is lost, the will says it."""
    if status is not None:
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(DISCONNECT_TIMEOUT_S):
                await line.publish(status, "offline")


_NO_LOCAL = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True)
_SHARED_SUBSCRIPTION = SubscribeOptions(qos=1)


def _unavailable(error: Exception | str) -> Unavailable:
    return Unavailable(f"The broker of Home Assistant cannot be used: {error}. Check LATCHBOARD_HOMEASSISTANT and that it runs.")
