"""The device link over Mosquitto, which the service uses as one of its clients.

This link infers what an external broker does not report:
- Mosquitto has no topic for logins. A device is connected when its `status` (native, ESPHome), `tele/LWT` (Tasmota) or `online`
  (Shelly) says so, and disconnected when that topic or its will says so. A device without any of these is connected as soon as it
  sends something.
- Mosquitto does not report subscriptions. `InboundDeviceSubscribed("#")` follows each `InboundDeviceConnected`. It is repeated
  when a message had no subscriber, so that the service tries again. The PUBACK of a QoS-1 publish says whether there was a
  subscriber (MQTT 5, reason code 0x10).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from adapters.mqtt.external_connection import (
    FIRST_ERROR_CODE,
    UNCONFIRMED,
    MosquittoClientSessionConfig,
    MosquittoConnectionSettings,
)
from adapters.mqtt.external_inbound import (
    AckHandle,
    MosquittoInboundBatch,
    MosquittoInboundQueue,
    TelemetryBatchFactory,
    UnknownDeviceMessage,
    UnknownDeviceMessageBuffer,
    acknowledge,
)
from adapters.mqtt.external_sessions import MAIN, MosquittoPartitionSessions, sessions_of, whole_fleet
from adapters.mqtt.mosquitto import MosquittoCredentialStore, MosquittoHealthMonitor, as_text
from domain.devices.link import (
    LOST,
    REVOKED,
    InboundDeviceConnected,
    InboundDeviceDisconnected,
    InboundDeviceSubscribed,
    InboundMessage,
    PublishResult,
)
from domain.devices.messages import OutboundMessage
from domain.kernel.clock import Clock

log = logging.getLogger(__name__)

_PRESENCE_TOPICS = {"status", "tele/LWT", "online"}
_OFFLINE_PAYLOADS = {b"offline", b"Offline", b"false"}
_NO_MATCHING_SUBSCRIBERS = 0x10
_MAX_PAYLOAD_BYTES = 64 * 1024
_RETRY_DELAY_S = 1.0


class MosquittoDeviceLink:
    """`DeviceBrokerLink` over an external Mosquitto. Without a credential store, its operator maintains its password file."""

    def __init__(
        self,
        settings: MosquittoConnectionSettings,
        clock: Clock,
        telemetry: TelemetryBatchFactory,
        credentials: MosquittoCredentialStore | None,
        pid_file: Path | None = None,
        shared: Sequence[MosquittoClientSessionConfig] | None = None,
        front: str = "",
    ) -> None:
        """`pid_file`: of a Mosquitto on this machine, whose configuration is then checked. `shared`: the sessions that a cluster
        divides among its instances by `hold`; None: all is this instance's. `front` names this instance in the events."""
        self._settings = settings
        self._front = front
        self._clock = clock
        self._credentials = credentials
        self._watch = MosquittoHealthMonitor(pid_file=pid_file)
        self._sessions = MosquittoPartitionSessions(
            settings=settings, sessions=shared or whole_fleet(settings), on_message=self._on_message, watch=self._watch
        )
        self._early = None if shared is None else UnknownDeviceMessageBuffer(on_expired=self._drop_unknown)
        if shared is None:
            self._sessions.hold((MAIN,))
        self._devices: dict[str, tuple[int, str]] = {}
        """Number and profile by device id."""
        self._subscribed_since: dict[str, int] = {}
        """The connected devices, with the Unix ms since which they are assumed to be subscribed."""
        self._retained_topics: dict[str, set[str]] = {}
        self._queue = MosquittoInboundQueue(
            make_batch=telemetry, acknowledge=self._acknowledge, reconnect=self._sessions.reconnect
        )
        self._retries: dict[str, asyncio.TimerHandle] = {}
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
            ),
            0,
        )

    async def start(self) -> None:
        if self._credentials is not None:
            await self._credentials.start()
        await asyncio.to_thread(self._watch.check_config)
        await self._sessions.start()
        if trouble := self.connection_problem():
            log.error("the service starts without its broker, and goes on trying: %s", trouble)

    async def stop(self) -> None:
        self._cancel_retries()
        if self._early is not None:
            self._early.close()
        await self._sessions.stop()
        self._queue.close()

    def hold_partitions(self, partitions: Collection[int]) -> None:
        """Read and send for the owner of these partitions of the log, as `mosquitto_service_connections` says."""
        self._sessions.hold(sessions_of(partitions))
        if not self._sessions.holds_main:
            self._cancel_retries()
            self._subscribed_since.clear()  # from now on the instance that sends to them knows it

    def suspend(self) -> None:
        """The devices stay connected to Mosquitto, and the instance that takes over reads from it."""
        self._sessions.suspend()

    def resume(self) -> None:
        self._sessions.resume()

    async def receive(self, limit: int) -> MosquittoInboundBatch:
        return await self._queue.take(limit)

    def has_waiting(self) -> bool:
        return len(self._queue) > 0

    async def upsert_credentials(self, device_id: str, device_no: int, password: str, profile: str) -> None:
        self._devices[device_id] = (device_no, profile)
        for message in () if self._early is None else self._early.take(device_id):
            self._on_message(*message)
        if self._credentials is not None and await self._credentials.upsert_credentials(device_id, password):
            self._mark_disconnected(device_id)

    async def remove_device(self, device_id: str) -> None:
        if self._credentials is not None:
            await self._credentials.delete_credentials(device_id)
        self._mark_disconnected(device_id)
        for topic in self._retained_topics.pop(device_id, set()):
            await self._publish(device_id, OutboundMessage(topic, b"", retain=True))
        self._devices.pop(device_id, None)

    async def send(self, device_id: str, message: OutboundMessage) -> PublishResult:
        if message.retain:
            self._retained_topics.setdefault(device_id, set()).add(message.topic)
        is_connected = device_id in self._subscribed_since
        if not is_connected and not message.retain:
            self._counters["outbound_no_subscriber"] += 1
            return PublishResult.NOT_SENT
        code = await self._publish(device_id, message)
        if is_connected and code == UNCONFIRMED:
            return PublishResult.UNCONFIRMED
        delivered = is_connected and code is not None and 0 <= code < FIRST_ERROR_CODE and code != _NO_MATCHING_SUBSCRIBERS
        self._counters["outbound_sent" if delivered else "outbound_no_subscriber"] += 1
        if is_connected and code == _NO_MATCHING_SUBSCRIBERS:
            self._schedule_retry(device_id)
        return PublishResult.SENT if delivered else PublishResult.NOT_SENT

    def is_connected(self, device_id: str) -> bool:
        return device_id in self._subscribed_since

    def last_subscribed_ms(self, device_id: str) -> int:
        return self._subscribed_since.get(device_id, 0)

    def disconnect(self, device_id: str) -> bool:
        return False  # only Mosquitto itself can close a connection, and all instances share it

    def stats(self) -> Mapping[str, int]:
        return {
            **self._counters,
            "reconnects": self._sessions.reconnects,
            "broker_sessions": self._sessions.held,
            "broker_sessions_away": len(self._sessions.errors()),
            "connections": len(self._subscribed_since),
            "inbound_queue": len(self._queue),
            **({} if self._watch.dropped is None else {"dropped_by_broker": self._watch.dropped}),
        }

    def warning(self) -> str | None:
        return as_text(self._watch.warnings())

    def connection_problem(self) -> str | None:
        errors = self._sessions.errors()
        if not errors:
            return None
        address = f"{self._settings.host}:{self._settings.port}"
        reasons = "; ".join(sorted(set(errors.values())))
        return (
            f"The MQTT broker at {address} cannot be used: {reasons}. Check LATCHBOARD_BROKER and that it runs. "
            f"Sessions without a connection: {', '.join(errors)}."
        )

    async def _publish(self, device_id: str, message: OutboundMessage) -> int | None:
        return await self._sessions.publish(f"devices/{device_id}/{message.topic}", message)

    def _acknowledge(self, handles: Sequence[AckHandle]) -> None:
        self._counters["inbound_acked"] += len(handles)
        acknowledge(handles)

    def _on_message(self, message: Any, ack_handle: AckHandle | None) -> None:
        _, device_id, topic = message.topic.split("/", 2)
        device = self._devices.get(device_id)
        if device is None and self._early is not None and self._early.keep(device_id, (message, ack_handle)):
            return
        if message.retain:
            self._retained_topics.setdefault(device_id, set()).add(topic)
        drop_reason = self._drop_reason(device, message)
        if drop_reason is not None or device is None or not message.payload:
            self._counters[drop_reason or "inbound_publish"] += 1
            if ack_handle is not None:
                acknowledge([ack_handle])
            return
        self._enqueue(device_id, *device, topic, message, ack_handle)

    def _drop_unknown(self, message: UnknownDeviceMessage) -> None:
        self._counters["dropped_unknown"] += 1
        if message[1] is not None:
            acknowledge([message[1]])

    def _drop_reason(self, device: tuple[int, str] | None, message: Any) -> str | None:
        """The counter of a dropped message, or None."""
        if device is None:
            return "dropped_unknown"
        if len(message.payload) > _MAX_PAYLOAD_BYTES:
            return "dropped_oversize"
        return "dropped_queue_full" if message.qos == 0 and len(self._queue) >= self._settings.max_queued else None

    def _enqueue(self, device_id: str, number: int, profile: str, topic: str, message: Any, ack_handle: AckHandle | None) -> None:
        now_ms = self._clock.now_ms()
        is_offline = topic in _PRESENCE_TOPICS and message.payload in _OFFLINE_PAYLOADS
        if not is_offline and (topic in _PRESENCE_TOPICS or not message.retain):
            self._mark_connected(device_id, number, now_ms)
        if topic == "telemetry" and profile == "native":
            self._counters["inbound_telemetry"] += 1
            self._queue.put((number, now_ms, message.payload), ack_handle)
        else:
            self._counters["inbound_publish"] += 1
            inbound = InboundMessage(number, device_id, topic, message.payload, message.qos, message.retain, now_ms)
            self._queue.put(inbound, ack_handle)
        if is_offline and self._subscribed_since.pop(device_id, None) is not None:
            self._queue.put(InboundDeviceDisconnected(number, device_id, LOST, now_ms, front=self._front))

    def _mark_connected(self, device_id: str, number: int, now_ms: int) -> None:
        """Only the instance that can send to devices reports them as connected."""
        if device_id not in self._subscribed_since and self._sessions.holds_main:
            self._subscribed_since[device_id] = now_ms
            self._queue.put(InboundDeviceConnected(number, device_id, "unknown", "", now_ms, front=self._front))
            self._queue.put(InboundDeviceSubscribed(number, device_id, "#", now_ms))

    def _mark_disconnected(self, device_id: str) -> None:
        if self._subscribed_since.pop(device_id, None) is not None:
            number = self._devices[device_id][0]
            self._queue.put(InboundDeviceDisconnected(number, device_id, REVOKED, self._clock.now_ms(), front=self._front))

    def _schedule_retry(self, device_id: str) -> None:
        """The device is connected but has not subscribed yet: report a subscription later, so that the service tries again."""

        def retry() -> None:
            del self._retries[device_id]
            if device_id in self._subscribed_since:
                now_ms = self._subscribed_since[device_id] = self._clock.now_ms()
                self._queue.put(InboundDeviceSubscribed(self._devices[device_id][0], device_id, "#", now_ms))

        if device_id not in self._retries:
            self._retries[device_id] = asyncio.get_running_loop().call_later(_RETRY_DELAY_S, retry)

    def _cancel_retries(self) -> None:
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()
