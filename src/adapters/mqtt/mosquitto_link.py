"""The device link over Mosquitto, reached as one of its clients.

What an external broker cannot say, this link infers, and says so here:
- Mosquitto has no topic for logins. A device is connected when its `status` (native, ESPHome), `tele/LWT` (Tasmota) or `online`
  (Shelly) says so, and gone when that or its will says so. A device without any is connected once it sends something.
- Subscriptions are not told either: `Subscribed("#")` follows each `Connected`, and again when a send found nobody, so that the
  service tries again. Whether anybody listened, Mosquitto tells in the answer to a QoS-1 publish (MQTT 5, 0x10).
- A device's QoS-1 message is confirmed to it by Mosquitto, which then keeps it until the batch is acknowledged (a persistent
  session of ours; `persistence true` there carries it over a crash of Mosquitto). `nack` reconnects, and what was not
  acknowledged comes again.

aiomqtt acknowledges before its reader runs and drops what its queue cannot hold, so messages are taken from paho below it, are
acknowledged by hand, and are bounded by our Receive Maximum.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from adapters.mqtt.inbound_queue import AckHandle, InboundQueue, MosquittoInboundBatch, TelemetryBatchFactory
from adapters.mqtt.mosquitto_credentials import DEVICE_PUBLISH_TOPICS, MosquittoCredentialStore
from domain.devices.codec import OutboundMessage
from domain.devices.link import LOST, REVOKED, DeviceConnected, DeviceDisconnected, DeviceSubscribed, InboundMessage, SendResult
from domain.kernel.backoff import Backoff
from domain.kernel.clock import Clock
from domain.kernel.errors import Unavailable

log = logging.getLogger(__name__)

_PRESENCE_TOPICS = {"status", "tele/LWT", "online"}
_ONLINE_PAYLOADS, _OFFLINE_PAYLOADS = {b"online", b"Online", b"true"}, {b"offline", b"Offline", b"false"}
_NO_MATCHING_SUBSCRIBERS = 0x10
_MAX_PAYLOAD_BYTES = 64 * 1024
_PUBACK_TIMEOUT_S = 5.0
_RETRY_DELAY_S = 1.0
_RECONNECT_BACKOFF = Backoff((0.2, 1.0, 2.0, 5.0, 10.0))
_SESSION_EXPIRY_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class MosquittoSettings:
    """Where Mosquitto is and who we are there. `client_id` names the session that keeps what we have not acknowledged."""

    host: str
    port: int
    username: str
    password: str
    client_id: str = "latchboard"
    max_inflight: int = 1000  # as `max_inflight_messages` there, which is 20 unless it is set
    tls: bool = False  # with the certificate authorities of the system, or of SSL_CERT_FILE
    max_queued: int = 10_000  # QoS-0 messages beyond are dropped and counted


class MosquittoDeviceLink:
    """`DeviceLink` over an external Mosquitto. Without a provisioner, whoever runs Mosquitto keeps its password file."""

    def __init__(
        self,
        settings: MosquittoSettings,
        clock: Clock,
        telemetry: TelemetryBatchFactory,
        provisioner: MosquittoCredentialStore | None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._credentials = provisioner
        self._devices: dict[str, tuple[int, str]] = {}
        self._connected_since: dict[str, int] = {}  # and since when it is taken to listen
        self._retained_topics: dict[str, set[str]] = {}
        self._queue = InboundQueue(telemetry, self._acknowledge, self._reconnect)
        self._pending_acks: dict[int, asyncio.Future[int]] = {}
        self._retries: dict[str, asyncio.TimerHandle] = {}
        self._client: aiomqtt.Client | None = None
        self._connection_task: asyncio.Task[None] | None = None
        self._counters = dict.fromkeys(
            (
                "inbound_telemetry",
                "inbound_publish",
                "inbound_acked",
                "dropped_oversize",
                "dropped_queue_full",
                "dropped_unknown",
                "outbound_sent",
                "outbound_no_subscriber",
                "reconnects",
            ),
            0,
        )

    async def start(self) -> None:
        if self._credentials is not None:
            await self._credentials.start()
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection_task = asyncio.create_task(self._keep_connected(first))
        try:
            await first
        except aiomqtt.MqttError as error:
            host, port = self._settings.host, self._settings.port
            raise Unavailable(
                f"The MQTT broker at {host}:{port} cannot be used: {error}. Check LATCHBOARD_BROKER and that it runs."
            ) from error

    async def stop(self) -> None:
        for retry in self._retries.values():
            retry.cancel()
        if self._connection_task is not None:
            self._connection_task.cancel()
            await asyncio.wait([self._connection_task], timeout=2)
        self._queue.close()

    async def _keep_connected(self, first: asyncio.Future[None]) -> None:
        attempt = 0
        while True:
            try:
                async with self._new_client() as client:
                    await client.subscribe([(f"devices/+/{topic}", _SUBSCRIBE_OPTIONS) for topic in DEVICE_PUBLISH_TOPICS])
                    self._client, attempt = client, 0
                    if not first.done():
                        first.set_result(None)
                    await client._disconnected
            except aiomqtt.MqttError as error:
                if not first.done():
                    first.set_exception(error)
                    return
                log.warning("the connection to the MQTT broker is lost (%s); connecting again", error)
            finally:
                self._client = None
                self._fail_pending_acks()
            self._counters["reconnects"] += 1
            attempt += 1
            await asyncio.sleep(_RECONNECT_BACKOFF.pause_s(attempt))

    def _new_client(self) -> aiomqtt.Client:
        settings = self._settings
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _SESSION_EXPIRY_S
        properties.ReceiveMaximum = settings.max_inflight
        client = aiomqtt.Client(
            settings.host,
            settings.port,
            username=settings.username,
            password=settings.password,
            identifier=settings.client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=False,
            properties=properties,
            max_inflight_messages=settings.max_inflight,
            tls_context=ssl.create_default_context() if settings.tls else None,
        )
        paho = client._client
        paho.manual_ack_set(True)
        paho.on_message = lambda _client, _data, message: self._on_message(client, message)
        paho.on_publish = lambda _client, _data, mid, code, _properties: self._on_puback(mid, code.value)
        return client

    def _acknowledge(self, receipts: Sequence[AckHandle]) -> None:
        self._counters["inbound_acked"] += len(receipts)
        for client, mid, qos in receipts:
            # Those of an earlier connection come again by themselves.
            if client is self._client:
                client._client.ack(mid, qos)

    def _reconnect(self) -> None:
        if self._client is not None:
            self._client._client.disconnect()

    def _on_message(self, client: aiomqtt.Client, message: Any) -> None:
        _, device_id, topic = message.topic.split("/", 2)
        receipt = (client, message.mid, message.qos) if message.qos else None
        device = self._devices.get(device_id)
        unwanted = (
            "dropped_unknown"
            if device is None
            else "dropped_oversize"
            if len(message.payload) > _MAX_PAYLOAD_BYTES
            else "dropped_queue_full"
            if receipt is None and len(self._queue) >= self._settings.max_queued
            else None
        )
        if message.retain:
            self._retained_topics.setdefault(device_id, set()).add(topic)
        if unwanted is not None or device is None or not message.payload:
            self._counters[unwanted or "inbound_publish"] += 1
            if receipt is not None:
                client._client.ack(message.mid, message.qos)
            return
        self._arrive(device_id, *device, topic, message, receipt)

    def _arrive(self, device_id: str, number: int, profile: str, topic: str, message: Any, receipt: AckHandle | None) -> None:
        now = self._clock.now_ms()
        gone = topic in _PRESENCE_TOPICS and message.payload in _OFFLINE_PAYLOADS
        if not gone and device_id not in self._connected_since and (topic in _PRESENCE_TOPICS or not message.retain):
            self._connected_since[device_id] = now
            self._queue.put(DeviceConnected(number, device_id, "unknown", "", now))
            self._queue.put(DeviceSubscribed(number, device_id, "#", now))
        if topic == "telemetry" and profile == "native":
            self._counters["inbound_telemetry"] += 1
            self._queue.put((number, now, message.payload), receipt)
        else:
            self._counters["inbound_publish"] += 1
            published = InboundMessage(number, device_id, topic, message.payload, message.qos, message.retain, now)
            self._queue.put(published, receipt)
        if gone and self._connected_since.pop(device_id, None) is not None:
            self._queue.put(DeviceDisconnected(number, device_id, LOST, now))

    async def receive(self, limit: int) -> MosquittoInboundBatch:
        return await self._queue.take(limit)

    async def upsert_credentials(self, device_id: str, device_no: int, password: str, profile: str) -> None:
        self._devices[device_id] = (device_no, profile)
        if self._credentials is not None and await self._credentials.upsert_credentials(device_id, password):
            self._mark_disconnected(device_id)

    async def remove_device(self, device_id: str) -> None:
        if self._credentials is not None:
            await self._credentials.delete_credentials(device_id)
        self._mark_disconnected(device_id)
        for topic in self._retained_topics.pop(device_id, set()):
            await self._publish(device_id, OutboundMessage(topic, b"", retain=True))
        self._devices.pop(device_id, None)

    def _mark_disconnected(self, device_id: str) -> None:
        if self._connected_since.pop(device_id, None) is not None:
            self._queue.put(DeviceDisconnected(self._devices[device_id][0], device_id, REVOKED, self._clock.now_ms()))

    async def send(self, device_id: str, message: OutboundMessage) -> SendResult:
        if message.retain:
            self._retained_topics.setdefault(device_id, set()).add(message.topic)
        here = device_id in self._connected_since
        if not here and not message.retain:
            self._counters["outbound_no_subscriber"] += 1
            return SendResult.NOT_SENT
        code = await self._publish(device_id, message)
        delivered = here and code is not None and code < 0x80 and code != _NO_MATCHING_SUBSCRIBERS
        self._counters["outbound_sent" if delivered else "outbound_no_subscriber"] += 1
        if here and code == _NO_MATCHING_SUBSCRIBERS:
            self._schedule_retry(device_id)
        return SendResult.SENT if delivered else SendResult.NOT_SENT

    async def _publish(self, device_id: str, message: OutboundMessage) -> int | None:
        """The broker's reason code, or None when it gave none in time."""
        if self._client is None:
            return None
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if message.expiry_s is not None:
            properties.MessageExpiryInterval = max(1, math.ceil(message.expiry_s))
        info = self._client._client.publish(
            f"devices/{device_id}/{message.topic}", message.payload, message.qos, message.retain, properties
        )
        if message.qos == 0 or info.rc != 0:
            return None if info.rc != 0 else 0
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pending_acks[info.mid] = answer
        try:
            async with asyncio.timeout(_PUBACK_TIMEOUT_S):
                return await answer
        except (TimeoutError, ConnectionError):
            return None
        finally:
            self._pending_acks.pop(info.mid, None)

    def _on_puback(self, mid: int, code: int) -> None:
        answer = self._pending_acks.pop(mid, None)
        if answer is not None and not answer.done():
            answer.set_result(code)

    def _fail_pending_acks(self) -> None:
        for answer in self._pending_acks.values():
            if not answer.done():
                answer.set_exception(ConnectionError())

    def _schedule_retry(self, device_id: str) -> None:
        """The device is here but did not listen yet; let the service try again in a moment."""

        def again() -> None:
            del self._retries[device_id]
            if device_id in self._connected_since:
                now = self._connected_since[device_id] = self._clock.now_ms()
                self._queue.put(DeviceSubscribed(self._devices[device_id][0], device_id, "#", now))

        if device_id not in self._retries:
            self._retries[device_id] = asyncio.get_running_loop().call_later(_RETRY_DELAY_S, again)

    def is_connected(self, device_id: str) -> bool:
        return device_id in self._connected_since

    def last_subscribed_ms(self, device_id: str) -> int:
        return self._connected_since.get(device_id, 0)

    def stats(self) -> Mapping[str, int]:
        return {**self._counters, "connections": len(self._connected_since), "inbound_queue": len(self._queue)}


_SUBSCRIBE_OPTIONS = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True)
