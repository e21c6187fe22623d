"""The connection to an external Mosquitto: it stays connected, publishes and waits for the PUBACK, and acknowledges by hand.

Mosquitto keeps a QoS-1 message of a device until it is acknowledged here, because the session is persistent; its configuration
(`mosquitto_config`) says how many and how safely. aiomqtt acknowledges before its reader runs, and drops what its
queue cannot hold. So messages are taken from paho below it, acknowledged by hand, and bounded by our Receive Maximum (MQTT 5,
3.1.2.11.3).

Keeps the packets of an aiomqtt connection moving when the event loop has lost sight of its socket.

aiomqtt registers paho's socket with the event loop by its number. When an earlier socket of that number ended with an error,
uvloop may still hold its closed watcher, and the registration fails. Nothing is then written, not even a ping, until the keep
alive ends. So the connection also looks itself, a few times a second.

The opposite ends the process: libuv aborts when a socket is closed that it still watches. aiomqtt starts to watch a socket for
writing in a later turn of the loop than paho asks for it, when paho may have written all, or closed it; nobody then ends the
watch. `guard_socket` looks again in that turn, and ends every watch before the socket is closed.

Watches an external Mosquitto for what can cost messages that it has acknowledged to devices.

It looks at the limits of the CONNACK, at whether our session was kept, at the counter of dropped messages ($SYS), and, where
Mosquitto runs on this machine, at its configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from adapters.mqtt.external_inbound import AckHandle
from adapters.mqtt.mosquitto_files import MAX_INFLIGHT, config_faults, find_config_file, read_config
from domain.devices.messages import OutboundMessage
from domain.kernel.backoff import Backoff

INTERVAL_S = 0.25
KEEP_ALIVE_S = 15
"""A connection that is dead without a word is noticed within twice this time."""


def guard_socket(client: aiomqtt.Client) -> None:
    """Call this before the client connects."""
    paho, loop = client._client, asyncio.get_running_loop()
    on_close = paho.on_socket_close

    def register(_paho: Any, _data: Any, sock: Any) -> None:
        loop.call_soon_threadsafe(lambda: watch_writes(client, sock))  # paho calls this from the thread that connects, too

    def close(_paho: Any, data: Any, sock: Any) -> None:
        if sock.fileno() > -1:
            loop.remove_writer(sock.fileno())
        if on_close is not None:
            on_close(paho, data, sock)

    paho.on_socket_register_write, paho.on_socket_close = register, close


def watch_writes(client: aiomqtt.Client, sock: Any) -> None:
    if sock.fileno() > -1 and client._client._registered_write:
        asyncio.get_running_loop().add_writer(sock.fileno(), _write, client)


def _write(client: aiomqtt.Client) -> None:
    try:
        client._client.loop_write()
    except Exception as error:  # as aiomqtt does: the connection is broken
        if not client._disconnected.done():
            client._disconnected.set_exception(error)


def close_socket(client: aiomqtt.Client) -> None:
    """Call this when the client is not used any more: aiomqtt leaves the socket open when a connection fails half way, and a
    thread may be opening it just now."""
    paho, loop = client._client, asyncio.get_running_loop()

    def close_opened(_paho: Any, _data: Any, _sock: Any) -> None:
        loop.call_soon_threadsafe(paho._sock_close)

    paho.on_socket_open = close_opened
    paho._sock_close()


@contextlib.asynccontextmanager
async def kept_flowing(client: aiomqtt.Client) -> AsyncIterator[None]:
    """While the context is open, waiting packets of the connected client are read and written whatever the event loop does."""
    task = asyncio.create_task(_keep_flowing(client), name="MQTT socket")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _keep_flowing(client: aiomqtt.Client) -> None:
    paho = client._client
    while not client._disconnected.done():
        await asyncio.sleep(INTERVAL_S)
        try:
            paho.loop_read()
            if paho.want_write():
                paho.loop_write()
        except Exception as error:  # as aiomqtt does in its own callbacks: the connection is broken
            if not client._disconnected.done():
                client._disconnected.set_exception(error)


DROPPED_TOPIC = "$SYS/broker/publish/messages/dropped"
_SYS_TIMEOUT_S = 90.0
"""Longer than the largest `sys_interval` that the configuration may have."""

log = logging.getLogger(__name__)


class MosquittoHealthMonitor:
    def __init__(self, pid_file: Path | None = None, *, now_s: Callable[[], float] = monotonic) -> None:
        """`pid_file`: of a Mosquitto on this machine; None if it runs elsewhere."""
        self._pid_file = pid_file
        self._now_s = now_s
        self._connections = 0
        self._connected_at_s: float | None = None
        self._session_was_lost = False
        self._limits: list[str] = []
        self._config: list[str] = []
        self.dropped: int | None = None
        """Messages that Mosquitto has dropped since it started; None until it tells."""

    def on_connack(self, session_present: bool, properties: Any, session_expiry_s: int) -> None:
        """`properties`: those of the CONNACK, as attributes; None without any."""
        self._connections += 1
        self._connected_at_s = self._now_s()
        if not session_present and self._connections > 1:
            self._session_was_lost = True
            log.error("Mosquitto has lost the session of this service, and with it the messages of devices that were in it")
        elif not session_present:
            log.info("Mosquitto has no session of this service yet; it keeps messages from now on")
        self._limits = _limit_faults(properties, session_expiry_s)

    def on_sys_message(self, topic: str, payload: bytes) -> None:
        if topic == DROPPED_TOPIC and payload.isdigit():
            self.dropped = int(payload)

    def check_config(self) -> None:
        """Read the configuration of a Mosquitto on this machine."""
        if self._pid_file is None:
            return
        try:
            self._config = config_faults(read_config(find_config_file(self._pid_file)))
        except (OSError, ValueError) as error:
            self._config = [f"its configuration cannot be checked ({error})"]

    def warnings(self) -> Sequence[str]:
        """What costs messages, or may; each with what to do. Empty when all is well."""
        found = [*self._config, *self._limits]
        if self._session_was_lost:
            found.append("it has lost this service's session since the service started: set persistence true")
        if self.dropped:
            found.append(f"it has dropped {self.dropped} messages since it started: set max_queued_messages 0")
        since_s = self._connected_at_s
        if self.dropped is None and since_s is not None and self._now_s() - since_s > _SYS_TIMEOUT_S:
            found.append(
                "it does not tell how many messages it drops: set sys_interval 10 and let this service read $SYS/broker/#"
            )
        return found


def _limit_faults(properties: Any, session_expiry_s: int) -> list[str]:
    """What the broker does not grant; an absent property is MQTT 5's default, which is enough."""
    found = []
    if getattr(properties, "MaximumQoS", 1) < 1:
        found.append("it allows QoS 0 only, which confirms nothing: allow QoS 1")
    if getattr(properties, "RetainAvailable", 1) == 0:
        found.append(
            "it keeps no retained messages, so schedules do not reach devices that connect later: set retain_available true"
        )
    granted_s = getattr(properties, "SessionExpiryInterval", session_expiry_s)
    if granted_s < session_expiry_s:
        found.append(f"it keeps this service's queue for {granted_s} s only: remove persistent_client_expiration")
    return found


def as_text(warnings: Sequence[str]) -> str | None:
    """One line, or None when there is no warning."""
    if not warnings:
        return None
    advice = "`latchboard broker-config mosquitto` writes a whole file."
    return f"Mosquitto may lose messages that it has acknowledged: {'; '.join(warnings)}. {advice}"


_PUBACK_TIMEOUT_S = 5.0
_STOP_TIMEOUT_S = 2.0
UNCONFIRMED = -1
"""In place of a reason code: the broker has the message perhaps."""
_RECONNECT_BACKOFF = Backoff((0.2, 1.0, 2.0, 5.0, 10.0))
_SESSION_EXPIRY_S = 7 * 24 * 3600
_FIRST_ATTEMPT_S = 5.0
"""A broker that does not answer holds up the start no longer."""
FIRST_ERROR_CODE = 0x80
DEVICE_OPTIONS = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True)


@dataclass(frozen=True, slots=True)
class MosquittoConnectionSettings:
    """The address of Mosquitto, and the login to use. `client_id` names the session that keeps what is not acknowledged yet."""

    host: str
    port: int
    username: str
    password: str
    client_id: str = "latchboard"
    max_inflight: int = MAX_INFLIGHT
    tls: bool = False  # with the certificate authorities of the system, or of SSL_CERT_FILE
    max_queued: int = 10_000  # further QoS-0 messages are dropped and counted


@dataclass(frozen=True, slots=True)
class MosquittoClientSessionConfig:
    """What the broker keeps for a client id: its subscriptions, and what it has not acknowledged."""

    client_id: str
    filters: Sequence[str]
    max_inflight: int
    options: SubscribeOptions = DEVICE_OPTIONS
    left_filters: Sequence[str] = ()
    """To unsubscribe from, because the session may have them from before."""


class MosquittoConnection:
    """The connection to one session. `open` it once; `close` it once."""

    def __init__(
        self,
        settings: MosquittoConnectionSettings,
        session: MosquittoClientSessionConfig,
        on_message: Callable[[Any, AckHandle | None], None],
        watch: MosquittoHealthMonitor | None,
    ) -> None:
        """`on_message` receives each of paho's messages from devices, with the handle to acknowledge it; None at QoS 0. `watch`
        gets what the broker tells of itself."""
        self._settings = settings
        self._session = session
        self._watch = watch
        self._on_message = on_message
        self._pending_acks: dict[int, asyncio.Future[int]] = {}
        self._client: aiomqtt.Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._attempted = asyncio.Event()
        self.error: str | None = "not connected yet"
        """Why the broker cannot be used; None while it is connected and the topics of devices are subscribed."""
        self.reconnects = 0

    def open(self) -> None:
        """Connect, and again whenever the connection is lost, with a growing pause, until `close`."""
        self._task = asyncio.create_task(self._keep_connected(), name=f"MQTT session {self._session.client_id}")

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
            connecting = self._new_client()
            try:
                async with connecting as client, kept_flowing(client):
                    await self._subscribe(client)
                    self._client, attempt, self.error = client, 0, None
                    self._attempted.set()
                    await client._disconnected
                    self.error = "it has closed the connection"
            except (aiomqtt.MqttError, OSError, ValueError) as error:  # paho's own errors come through aiomqtt as they are
                self.error = str(error) or type(error).__name__
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
        for left in self._session.left_filters:
            await client.unsubscribe(left)
        filters = [(each, self._session.options) for each in self._session.filters]
        codes: Sequence[Any] = await client.subscribe(filters)
        refused = [
            each for (each, _), code in zip(filters, codes, strict=True) if getattr(code, "value", code) >= FIRST_ERROR_CODE
        ]
        if refused:
            raise aiomqtt.MqttError(f"it refuses a subscription to {', '.join(refused)}")
        if self._watch is not None:
            await client.subscribe(DROPPED_TOPIC)

    def _new_client(self) -> aiomqtt.Client:
        settings = self._settings
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _SESSION_EXPIRY_S
        properties.ReceiveMaximum = self._session.max_inflight
        client = aiomqtt.Client(
            settings.host,
            settings.port,
            username=settings.username,
            password=settings.password,
            identifier=self._session.client_id,
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
        if self._watch is not None:
            _watch_connack(paho, self._watch)
        paho.on_publish = lambda _client, _data, mid, code, _properties: self._on_puback(mid, code.value)
        return client

    def _receive(self, client: aiomqtt.Client, message: Any) -> None:
        if self._watch is not None and message.topic.startswith("$SYS/"):
            self._watch.on_sys_message(message.topic, message.payload)
        else:
            self._on_message(message, (client, message.mid, message.qos) if message.qos else None)

    def _on_puback(self, mid: int, code: int) -> None:
        reason_code = self._pending_acks.pop(mid, None)
        if reason_code is not None and not reason_code.done():
            reason_code.set_result(code)

    def _fail_pending_acks(self) -> None:
        for reason_code in self._pending_acks.values():
            if not reason_code.done():
                reason_code.set_exception(ConnectionError())


def _watch_connack(paho: Any, watch: MosquittoHealthMonitor) -> None:
    """aiomqtt waits for the CONNACK in paho's callback, and does not pass on what it contains."""
    on_connect = paho.on_connect

    def on_connack(client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not reason.is_failure:
            watch.on_connack(flags.session_present, properties, _SESSION_EXPIRY_S)
        on_connect(client, data, flags, reason, properties)

    paho.on_connect = on_connack
