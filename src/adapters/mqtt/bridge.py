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
GOODBYE_S = 1.0
"""The service must have stopped within five seconds, whatever a broker does."""
MAX_WAITING = 10_000
"""Messages not yet read; further ones are dropped by the client. Discovery messages of an earlier run come all at once."""
AT_ONCE = 64
"""Publishes under way, which the bridge's loop bounds; aiomqtt warns of more."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A broker: where it is, and who we are there."""

    host: str
    port: int
    username: str | None
    password: str | None = field(repr=False)
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    topic: str
    payload: bytes
    retain: bool


class BridgeLine:
    """One connection. Its methods raise Unavailable when it is lost."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self._client = client

    async def publish(self, topic: str, payload: str) -> None:
        """Retained; an empty payload clears it. Returns when the broker has it."""
        try:
            await self._client.publish(topic, payload, qos=1, retain=True, timeout=TIMEOUT_S)
        except aiomqtt.MqttError as error:
            raise _lost(error) from None

    async def heard(self) -> AsyncIterator[Heard]:
        try:
            async for message in self._client.messages:
                payload = message.payload if isinstance(message.payload, bytes) else b""
                yield Heard(str(message.topic), payload, bool(message.retain))
        except aiomqtt.MqttError as error:
            raise _lost(error) from None

    async def listen(self, filters: Sequence[str], options: SubscribeOptions) -> None:
        """Raises Unavailable where the broker forbids it."""
        codes: Sequence[Any] = await self._client.subscribe([(each, options) for each in filters], timeout=TIMEOUT_S)
        refused = [each for each, code in zip(filters, codes, strict=True) if getattr(code, "value", code) >= 0x80]
        if refused:
            raise _lost(f"it forbids to subscribe to {', '.join(refused)}")


class BridgePeer:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    @asynccontextmanager
    async def connected(
        self, listen: Sequence[str], commands: str | None = None, status: str | None = None
    ) -> AsyncIterator[BridgeLine]:
        """`status` says `online` while this lasts and `offline` afterwards, whatever ends it. Raises Unavailable."""
        client = self._client(status)
        try:
            async with client:
                line = BridgeLine(client)
                await line.listen(listen, _OURS)
                if commands is not None:
                    await line.listen([f"$share/latchboard/{commands}"], _SHARED)
                if status is not None:
                    await line.publish(status, "online")
                try:
                    yield line
                finally:
                    client.timeout = GOODBYE_S
                    await _goodbye(line, status)
        except aiomqtt.MqttError as error:
            raise _lost(error) from None

    def _client(self, status: str | None) -> aiomqtt.Client:
        peer = self._peer
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
            max_queued_incoming_messages=MAX_WAITING,
        )
        client.pending_calls_threshold = AT_ONCE
        client._client.connect_timeout = GOODBYE_S * 3  # it blocks a thread that the end of the process waits for
        return client


async def _goodbye(line: BridgeLine, status: str | None) -> None:
    """As far as it can be said: where the connection is lost, the will says it."""
    if status is not None:
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await line.publish(status, "offline")


_OURS = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True)
_SHARED = SubscribeOptions(qos=1)


def _lost(error: Exception | str) -> Unavailable:
    return Unavailable(f"The broker of Home Assistant cannot be used: {error}. Check LATCHBOARD_HOMEASSISTANT and that it runs.")
