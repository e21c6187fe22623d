"""The connection to an external Mosquitto: it stays connected, publishes and waits for the PUBACK, and acknowledges by hand.

Mosquitto keeps a QoS-1 message of a device until it is acknowledged here, because the session is persistent; its configuration
(`mosquitto.py`) says how many and how safely. aiomqtt acknowledges before its reader runs, and drops what its queue cannot hold.
So messages are taken from paho below it, acknowledged by hand, and bounded by our Receive Maximum (MQTT 5, 3.1.2.11.3).

Mosquitto (2.1 too) does not save shared subscriptions: after its restart the session is present, and what devices send before the
service subscribes anew is confirmed to them and given to nobody. It is known by its `$SYS/broker/version`, before the first
subscription, and gets plain ones, which it saves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import ssl
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from adapters.mqtt.external_inbound import AckHandle
from adapters.mqtt.mosquitto import DROPPED_TOPIC, MAX_INFLIGHT, MosquittoHealthMonitor
from adapters.mqtt.sockets import KEEP_ALIVE_S, close_socket, guard_socket, kept_flowing
from domain.devices.broker_auth import SERVICE_CLIENT_ID, SHARED_PREFIX
from domain.devices.messages import OutboundMessage
from domain.kernel.backoff import Backoff
from domain.kernel.dataclasses import service

log = logging.getLogger(__name__)

_PUBACK_TIMEOUT_S = 5.0
_STOP_TIMEOUT_S = 2.0
UNCONFIRMED = -1
"""In place of a reason code: the broker has the message perhaps."""
_RECONNECT_BACKOFF = Backoff((0.2, 1.0, 2.0, 5.0, 10.0))
_SESSION_EXPIRY_S = 7 * 24 * 3600
_FIRST_ATTEMPT_S = 5.0
"""A broker that does not answer holds up the start no longer."""
FIRST_ERROR_CODE = 0x80
_PLAIN_OPTIONS = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True)
_SHARED_OPTIONS = SubscribeOptions(qos=1, retainAsPublished=True)  # noLocal is a protocol error in a shared subscription
_VERSION_TOPIC = "$SYS/broker/version"
_NO_CONNACK = (
    "it accepts connections and does not answer CONNECT. Perhaps it does not speak MQTT 5, which this service needs (RabbitMQ "
    "from 3.13, with its plugin rabbitmq_mqtt), or another program has this port"
)


@dataclass(frozen=True, slots=True)
class MosquittoConnectionSettings:
    """The address of Mosquitto, and the login to use. `client_id` names the session that keeps what is not acknowledged yet."""

    host: str
    port: int
    username: str
    password: str
    client_id: str = SERVICE_CLIENT_ID
    max_inflight: int = MAX_INFLIGHT
    tls: bool = False  # with the certificate authorities of the system, or of SSL_CERT_FILE
    max_queued: int = 10_000  # further QoS-0 messages are dropped and counted


@dataclass(frozen=True, slots=True)
class MosquittoClientSessionConfig:
    """What the broker keeps for a client id: its subscriptions, and what it has not acknowledged."""

    client_id: str
    filters: Sequence[str]
    max_inflight: int
    unshared_filters: Sequence[str] | None = None
    """Instead of `filters` at a broker that forgets shared subscriptions; None: the same."""

    def left_filters(self, wanted: Collection[str]) -> Sequence[str]:
        """To unsubscribe from: the session may have them from before."""
        return sorted({*self.filters, *(self.unshared_filters or ())} - set(wanted))


@service
class MosquittoConnection:
    """The connection to one session. `open` it once; `close` it once.

    `on_message` receives each of paho's messages from devices, with the handle to acknowledge it; None at QoS 0. `watch` gets
    what the broker tells of itself."""

    settings: MosquittoConnectionSettings
    session: MosquittoClientSessionConfig
    on_message: Callable[[Any, AckHandle | None], None]
    watch: MosquittoHealthMonitor | None
    error: str | None = field(default="not connected yet", init=False)
    """Why the broker cannot be used; None while it is connected and the topics of devices are subscribed."""
    reconnects: int = field(default=0, init=False)
    _pending_acks: dict[int, asyncio.Future[int]] = field(default_factory=dict, init=False)
    _client: aiomqtt.Client | None = field(default=None, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _attempted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _has_connack: bool = field(default=False, init=False)
    _forgets_shared: bool = field(default=False, init=False)
    """It has said that it is a Mosquitto."""

    def open(self) -> None:
        """Connect, and again whenever the connection is lost, with a growing pause, until `close`."""
        self._task = asyncio.create_task(self._keep_connected(), name=f"MQTT session {self.session.client_id}")

    async def wait_for_attempt(self) -> None:
        """Returns when the first attempt has succeeded or failed, or is taking long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_ATTEMPT_S):
                await self._attempted.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_STOP_TIMEOUT_S)

    async def publish(self, topic: str, message: OutboundMessage) -> int | None:
        """Returns the broker's reason code; UNCONFIRMED when there was none in time; None when it was not sent."""
        if self._client is None:
            return None
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if message.expiry_s is not None:
            properties.MessageExpiryInterval = max(1, math.ceil(message.expiry_s))
        info = self._client._client.publish(topic, message.payload, message.qos, message.retain, properties)
        if message.qos == 0 or info.rc != 0:
            return None if info.rc != 0 else 0
        reason_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pending_acks[info.mid] = reason_code
        try:
            async with asyncio.timeout(_PUBACK_TIMEOUT_S):
                return await reason_code
        except (TimeoutError, ConnectionError):
            return UNCONFIRMED
        finally:
            self._pending_acks.pop(info.mid, None)

    def reconnect(self) -> None:
        """The broker then sends again what was not acknowledged."""
        if self._client is not None:
            self._client._client.disconnect()

    async def _keep_connected(self) -> None:
        attempt = 0
        while True:
            connecting, self._has_connack = self._new_client(), False
            try:
                async with connecting as client, kept_flowing(client):
                    await self._subscribe(client)
                    self._client, attempt, self.error = client, 0, None
                    self._attempted.set()
                    await client._disconnected
                    self.error = "it has closed the connection"
            except (aiomqtt.MqttError, OSError, ValueError) as error:  # paho's own errors come through aiomqtt as they are
                is_open = connecting._client.socket() is not None
                self.error = _NO_CONNACK if is_open and not self._has_connack else str(error) or type(error).__name__
            finally:
                self._client = None
                close_socket(connecting)
                self._fail_pending_acks()
            self._attempted.set()
            self.reconnects += 1
            attempt += 1
            pause_s = _RECONNECT_BACKOFF.pause_s(attempt)
            log.warning("no connection to the MQTT broker (%s); trying again in %.1f s", self.error, pause_s)
            await asyncio.sleep(pause_s)

    async def _subscribe(self, client: aiomqtt.Client) -> None:
        """Raises MqttError when the broker refuses a topic of devices, aiomqtt's and paho's errors."""
        wanted = await self._wanted_filters(client)
        if wanted:
            options = [_SHARED_OPTIONS if each.startswith(SHARED_PREFIX) else _PLAIN_OPTIONS for each in wanted]
            codes: Sequence[Any] = await client.subscribe(list(zip(wanted, options, strict=True)))
            refused = [each for each, code in zip(wanted, codes, strict=True) if getattr(code, "value", code) >= FIRST_ERROR_CODE]
            if refused:
                raise aiomqtt.MqttError(f"it refuses a subscription to {', '.join(refused)}")
        for left in self.session.left_filters(wanted):
            await client.unsubscribe(left)
        if self.watch is not None:
            await client.subscribe(DROPPED_TOPIC)

    async def _wanted_filters(self, client: aiomqtt.Client) -> Sequence[str]:
        """Asks the broker what it is. Mosquitto sends the retained version before it answers the UNSUBSCRIBE."""
        if self.session.unshared_filters is None:
            return self.session.filters
        if not self._forgets_shared:
            await client.subscribe(_VERSION_TOPIC)
            await client.unsubscribe(_VERSION_TOPIC)
            if self._forgets_shared and self.watch is not None:
                log.info(
                    "Mosquitto forgets shared subscriptions when it restarts: one session reads the telemetry of all devices"
                )
        return self.session.unshared_filters if self._forgets_shared else self.session.filters

    def _new_client(self) -> aiomqtt.Client:
        settings = self.settings
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _SESSION_EXPIRY_S
        properties.ReceiveMaximum = self.session.max_inflight
        client = aiomqtt.Client(
            settings.host,
            settings.port,
            username=settings.username,
            password=settings.password,
            identifier=self.session.client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=False,
            properties=properties,
            max_inflight_messages=settings.max_inflight,
            keepalive=KEEP_ALIVE_S,
            tls_context=ssl.create_default_context() if settings.tls else None,
        )
        guard_socket(client)
        paho = client._client
        paho.manual_ack_set(True)
        paho.on_message = lambda _client, _data, message: self._receive(client, message)
        self._watch_connack(client)
        paho.on_publish = lambda _client, _data, mid, code, _properties: self._on_puback(mid, code.value)
        return client

    def _watch_connack(self, client: aiomqtt.Client) -> None:
        """aiomqtt waits for the CONNACK in paho's callback and does not pass on what it contains. It waits on when the broker
        closes the connection instead."""
        paho: Any = client._client
        on_connect, on_disconnect = paho.on_connect, paho.on_disconnect

        def on_connack(raw: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
            self._has_connack = True
            if self.watch is not None and not reason.is_failure:
                self.watch.on_connack(flags.session_present, properties, _SESSION_EXPIRY_S)
            on_connect(raw, data, flags, reason, properties)

        def on_end(raw: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
            if not self._has_connack and not client._connected.done():
                client._connected.set_exception(aiomqtt.MqttError(_NO_CONNACK))
            on_disconnect(raw, data, flags, reason, properties)

        paho.on_connect, paho.on_disconnect = on_connack, on_end

    def _receive(self, client: aiomqtt.Client, message: Any) -> None:
        if message.topic == _VERSION_TOPIC:
            self._forgets_shared = self._forgets_shared or message.payload.startswith(b"mosquitto")
        elif message.topic.startswith("$SYS/"):
            if self.watch is not None:
                self.watch.on_sys_message(message.topic, message.payload)
        else:
            self.on_message(message, (client, message.mid, message.qos) if message.qos else None)

    def _on_puback(self, mid: int, code: int) -> None:
        reason_code = self._pending_acks.pop(mid, None)
        if reason_code is not None and not reason_code.done():
            reason_code.set_result(code)

    def _fail_pending_acks(self) -> None:
        for reason_code in self._pending_acks.values():
            if not reason_code.done():
                reason_code.set_exception(ConnectionError())
