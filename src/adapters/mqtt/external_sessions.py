"""The sessions that this service has at an external broker, and which of them this instance holds.

A single instance has one session, with every topic of devices. In a cluster the sessions are numbered, and each is held by the
instance that owns a partition of the log: session 0 by the owner of partition 0, session n + 1 by the owner of partition n.
When an instance is gone, the new owner connects with the same client id and gets what was not acknowledged; the broker closes
what is left of the old connection. So no session is left behind with messages in it.

- Session 0 has everything but native telemetry, and sends. One reader keeps the order of relay states, results and presence.
- The others share native telemetry (`$share`, MQTT 5, 4.8.2), which may change places: it carries its own time. At a broker that
  forgets shared subscriptions they subscribe to nothing, and session 0 has that too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from adapters.mqtt.external_connection import MosquittoClientSessionConfig, MosquittoConnection, MosquittoConnectionSettings
from adapters.mqtt.external_inbound import AckHandle
from adapters.mqtt.mosquitto import MosquittoHealthMonitor
from domain.devices.broker_auth import DEVICE_PUBLISH_TOPICS, SHARED_PREFIX, TELEMETRY_CLIENT_ID
from domain.devices.messages import OutboundMessage
from domain.kernel.dataclasses import service

MAIN = 0
TELEMETRY_SESSIONS = 16
"""At most; a fixed number, because a session that no instance holds any more keeps its share of the messages."""
_TELEMETRY_INFLIGHT = 250
_TELEMETRY = "devices/+/telemetry"
_EVERYTHING = tuple(f"devices/+/{topic}" for topic in DEVICE_PUBLISH_TOPICS)


def whole_fleet(settings: MosquittoConnectionSettings) -> Sequence[MosquittoClientSessionConfig]:
    return [MosquittoClientSessionConfig(settings.client_id, _EVERYTHING, settings.max_inflight)]


def shared_by_cluster(settings: MosquittoConnectionSettings, partitions: int) -> Sequence[MosquittoClientSessionConfig]:
    """The main session continues that of a single instance."""
    events = [topic for topic in _EVERYTHING if topic != _TELEMETRY]
    main = MosquittoClientSessionConfig(settings.client_id, events, settings.max_inflight, unshared_filters=_EVERYTHING)
    return [main] + [
        MosquittoClientSessionConfig(
            f"{TELEMETRY_CLIENT_ID}{number}", (SHARED_PREFIX + _TELEMETRY,), _TELEMETRY_INFLIGHT, unshared_filters=()
        )
        for number in range(min(partitions, TELEMETRY_SESSIONS))
    ]


def sessions_of(partitions: Collection[int]) -> frozenset[int]:
    """The numbers of the sessions that belong to the owner of these partitions."""
    telemetry = {partition + 1 for partition in partitions if partition < TELEMETRY_SESSIONS}
    return frozenset(telemetry | {MAIN} if MAIN in partitions else telemetry)


@service
class MosquittoPartitionSessions:
    """One connection for each session that this instance holds. Nothing is held before `start` and after `stop`."""

    settings: MosquittoConnectionSettings
    sessions: Sequence[MosquittoClientSessionConfig]
    on_message: Callable[[Any, AckHandle | None], None]
    watch: MosquittoHealthMonitor
    _held: frozenset[int] = field(default=frozenset(), init=False)
    _is_open: bool = field(default=False, init=False)
    _connections: dict[int, MosquittoConnection] = field(default_factory=dict, init=False)
    _closing: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _past_reconnects: int = field(default=0, init=False)

    @property
    def holds_main(self) -> bool:
        return MAIN in self._connections

    @property
    def held(self) -> int:
        return len(self._connections)

    @property
    def reconnects(self) -> int:
        return self._past_reconnects + sum(each.reconnects for each in self._connections.values())

    async def start(self) -> None:
        """Returns when each first attempt has succeeded or failed; the attempts go on."""
        self.resume()
        await asyncio.gather(*[each.wait_for_attempt() for each in self._connections.values()])

    async def stop(self) -> None:
        self.suspend()
        await asyncio.gather(*self._closing)

    def hold(self, numbers: Collection[int]) -> None:
        self._held = frozenset(numbers)
        self._follow()

    def suspend(self) -> None:
        """Leave all sessions to other instances until `resume`."""
        self._is_open = False
        self._follow()

    def resume(self) -> None:
        self._is_open = True
        self._follow()

    def reconnect(self) -> None:
        """The broker then sends again what was not acknowledged."""
        for connection in self._connections.values():
            connection.reconnect()

    async def publish(self, topic: str, message: OutboundMessage) -> int | None:
        """As `MosquittoConnection.publish`; None if another instance holds the main session."""
        main = self._connections.get(MAIN)
        return None if main is None else await main.publish(topic, message)

    def errors(self) -> Mapping[str, str]:
        """Client id → why there is no connection, of the sessions that this instance holds."""
        return {
            self.sessions[number].client_id: connection.error
            for number, connection in sorted(self._connections.items())
            if connection.error is not None
        }

    def _follow(self) -> None:
        wanted = self._held & set(range(len(self.sessions))) if self._is_open else frozenset[int]()
        for number in self._connections.keys() - wanted:
            connection = self._connections.pop(number)
            self._past_reconnects += connection.reconnects
            closing = asyncio.create_task(connection.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        for number in wanted - self._connections.keys():
            watch = self.watch if number == MAIN else None
            connection = MosquittoConnection(
                settings=self.settings, session=self.sessions[number], on_message=self.on_message, watch=watch
            )
            self._connections[number] = connection
            connection.open()
