"""A connection to the broker of another program (Home Assistant's), separate from the broker that devices use.

Our own messages are not returned to us (`noLocal`). Commands arrive through a shared subscription, which delivers no retained
messages, so a retained message on a command topic is never taken for a command (MQTT 5, 4.8.2). The session ends with the
connection: a command that is sent while we are disconnected is lost, never late.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from adapters.mqtt.sockets import KEEP_ALIVE_S, guard_socket, kept_flowing
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable

TIMEOUT_S = 10.0
DISCONNECT_TIMEOUT_S = 1.0
"""Short, because the service must stop within five seconds, whatever a broker does."""
MAX_QUEUED_MESSAGES = 10_000
"""Unread messages; the client drops further ones. The discovery messages of an earlier run arrive all at once."""
MAX_INFLIGHT_PUBLISHES = 64
"""Publishes in flight, which the bridge's worker bounds; aiomqtt warns above this number."""

_NO_LOCAL = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True)
_SHARED_SUBSCRIPTION = SubscribeOptions(qos=1)


@service
class HomeAssistantMqttClient:
    """The address of the broker, and the login to use."""

    host: str
    port: int
    username: str | None
    password: str | None
    tls: bool = False

    @asynccontextmanager
    async def connect(
        self, listen: Sequence[str], commands: str | None = None, status: str | None = None
    ) -> AsyncIterator[MqttHomeAssistantConnection]:
        """The topic `status` is `online` while connected and `offline` afterwards, whatever ends the connection.

        Raises Unavailable."""
        client = self._new_client(status)
        guard_socket(client)
        try:
            async with client, kept_flowing(client):
                connection = MqttHomeAssistantConnection(client=client)
                await connection.subscribe(listen, _NO_LOCAL)
                if commands is not None:
                    await connection.subscribe([f"$share/latchboard/{commands}"], _SHARED_SUBSCRIPTION)
                if status is not None:
                    await connection.publish(status, "online")
                try:
                    yield connection
                finally:
                    client.timeout = DISCONNECT_TIMEOUT_S
                    await _publish_offline(connection, status)
        except aiomqtt.MqttError as error:
            raise _unavailable(error) from None

    def _new_client(self, status: str | None) -> aiomqtt.Client:
        client = aiomqtt.Client(
            self.host,
            self.port,
            username=self.username,
            password=self.password,
            protocol=aiomqtt.ProtocolVersion.V5,
            will=None if status is None else aiomqtt.Will(status, "offline", qos=1, retain=True),
            tls_context=ssl.create_default_context() if self.tls else None,
            timeout=TIMEOUT_S,
            keepalive=KEEP_ALIVE_S,
            max_queued_incoming_messages=MAX_QUEUED_MESSAGES,
        )
        client.pending_calls_threshold = MAX_INFLIGHT_PUBLISHES
        client._client.connect_timeout = DISCONNECT_TIMEOUT_S * 3  # it blocks a thread that the end of the process waits for
        return client


@service
class MqttHomeAssistantConnection:
    """One connection. Its methods raise Unavailable when it is lost."""

    client: aiomqtt.Client

    async def publish(self, topic: str, payload: str, expiry_s: int | None = None) -> None:
        """Publishes a retained message; an empty payload clears it. With `expiry_s` it is not retained, and the broker drops it
        after that time. Returns when the broker has acknowledged it."""
        properties = None
        if expiry_s is not None:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.MessageExpiryInterval = expiry_s
        retain = expiry_s is None
        try:
            await self.client.publish(topic, payload, qos=1, retain=retain, properties=properties, timeout=TIMEOUT_S)
        except aiomqtt.MqttError as error:
            raise _unavailable(error) from None

    async def messages(self) -> AsyncIterator[tuple[str, bytes, bool]]:
        """Topic, payload, and whether it was retained."""
        try:
            async for message in self.client.messages:
                payload = message.payload if isinstance(message.payload, bytes) else b""
                yield str(message.topic), payload, bool(message.retain)
        except aiomqtt.MqttError as error:
            raise _unavailable(error) from None

    async def subscribe(self, filters: Sequence[str], options: SubscribeOptions) -> None:
        """Raises Unavailable when the broker rejects a subscription."""
        codes: Sequence[Any] = await self.client.subscribe([(each, options) for each in filters], timeout=TIMEOUT_S)
        refused = [each for each, code in zip(filters, codes, strict=True) if getattr(code, "value", code) >= 0x80]
        if refused:
            raise _unavailable(f"it does not allow a subscription to {', '.join(refused)}")


async def _publish_offline(connection: MqttHomeAssistantConnection, status: str | None) -> None:
    """Best effort: when the connection is lost, the broker publishes the will instead."""
    if status is not None:
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(DISCONNECT_TIMEOUT_S):
                await connection.publish(status, "offline")


def _unavailable(error: Exception | str) -> Unavailable:
    return Unavailable(f"The broker of Home Assistant cannot be used: {error}. Check LATCHBOARD_HOMEASSISTANT and that it runs.")
