"""A malicious device with valid credentials attacks the service: forbidden actions have no effect, and no other client is
affected.

After each attack the victim is checked: it received nothing, nothing was published in its name, it is still connected, and the
service works.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import mqtt_packets
from support.broker import RawMqttConnection
from support.device import Device, DeviceConnection, cancel_tasks, create_device
from support.mqtt_packets import CONNACK, DISCONNECT, PING, PONG, PUBACK, SUBACK
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S, until

NOT_AUTHORIZED, MALFORMED, PROTOCOL_ERROR, QUOTA, CLIENT_ID_REFUSED = 0x87, 0x81, 0x82, 0x97, 0x85
SHARED, SUBSCRIPTION_IDS = 0x9E, 0xA1


@dataclass
class Scene:
    service: Service
    owner: ApiClient
    mallory: Device
    victim: Device
    line: DeviceConnection

    async def raw(self, client_id: str = "raw", **options: object) -> RawMqttConnection:
        raw = await mqtt_packets.open_connected(self.service.mqtt_port, self.mallory.credentials, client_id, **options)
        self.opened.append(raw)
        return raw

    def __post_init__(self) -> None:
        self.opened: list[RawMqttConnection] = []

    async def figure(self, name: str) -> float:
        """A value of the metrics page; 0 if it is missing."""
        page = (await self.owner.raw.get(f"{self.service.url}/metrics")).text
        found = re.search(rf"^latchboard_mqtt_{re.escape(name)} ([0-9.e+]+)$", page, re.M)
        return float(found[1]) if found else 0.0

    async def until_figure(self, name: str, at_least: float) -> None:
        await until(lambda: self.figure(name), lambda seen: seen >= at_least)


@pytest.fixture
async def scene(service: Service, owner: ApiClient) -> AsyncIterator[Scene]:
    async with _scene(service, owner) as scene:
        yield scene


@asynccontextmanager
async def _scene(service: Service, owner: ApiClient) -> AsyncIterator[Scene]:
    mallory, victim = await create_device(owner, "Mallory"), await create_device(owner, "Victim")
    async with victim.online(service, auto_reply=False) as line:
        scene = Scene(service, owner, mallory, victim, line)
        yield scene
        for raw in scene.opened:
            await raw.close()
        assert await line.drain_commands(owner) == [], "nobody spoke to the victim"
        seen = await owner.get(victim.path)
        assert (seen["isOnline"], seen["relayState"]) == (True, None)
        assert await owner.get(f"{victim.path}/telemetry") == []
        log = [each["eventType"] for each in await owner.get(f"{victim.path}/events")]
        assert set(log) <= {"device_registered", "credentials_generated", "device_online", "device_refused", "command_sent"}, log
    assert (await owner.raw.get(f"{service.url}/readyz")).status_code == 200
    assert service.error_lines() == []


async def finished(raw: RawMqttConnection) -> None:
    """Wait until everything sent before has been processed; the connection must be open."""
    await raw.send(PING)
    while (await raw.next_packet())[0] != PONG:
        pass


def foreign(scene: Scene) -> list[str]:
    mine, theirs = f"devices/{scene.mallory.device_id}", f"devices/{scene.victim.device_id}"
    return [
        *(f"{theirs}/{below}" for below in ("cmd", "state", "status", "telemetry", "result", "sched", "sched/rev", "hello")),
        *(f"{mine}/{below}" for below in ("cmd", "sched", "time")),
        mine,
        f"{mine}/",
        f"{mine}x/state",
        f"/{mine}/state",
        "devices",
        "$SYS/broker/uptime",
        "$SYS",
        f"$share/g/{theirs}/cmd",
        f"{mine}/" + "a" * 300,
        f"{mine}/" + "a/" * 32_000,
        "x" * 65_535,
    ]


async def test_a_forbidden_publish_is_acknowledged_and_dropped(scene: Scene) -> None:
    raw = await scene.raw()
    topics = foreign(scene)
    before = await scene.figure('dropped_total{reason="forbidden"}')
    for number, topic in enumerate(topics, start=1):
        await raw.send(mqtt_packets.publish(topic, b"ON", qos=1, packet_id=number, retain=True))
        head, body = await raw.next_packet()
        assert (head, body[:2]) == (PUBACK, struct.pack(">H", number)), topic[:80]
        assert body[2] in (NOT_AUTHORIZED, QUOTA), topic[:80]
    await finished(raw)
    # Some are too long for a packet, which is another reason, so not all count as forbidden.
    assert await scene.figure('dropped_total{reason="forbidden"}') >= before + len(topics) - 3
    assert (await scene.owner.get(scene.mallory.path))["relayState"] is None


async def test_a_topic_with_a_wildcard_or_a_null_character_closes_the_connection(scene: Scene) -> None:
    mine, theirs = f"devices/{scene.mallory.device_id}", f"devices/{scene.victim.device_id}"
    for topic in ("#", "devices/+/cmd", f"{theirs}/#", f"{mine}/+", f"{mine}/a\0b"):
        raw = await scene.raw()
        await raw.send(mqtt_packets.publish(topic, b"ON", qos=1))
        head, body = await raw.next_packet()
        assert (head, body[0]) == (DISCONNECT, 0x90), topic
        assert await raw.wait_closed()


async def test_a_device_receives_only_its_own_messages(scene: Scene) -> None:
    raw = await scene.raw()
    theirs, mine = f"devices/{scene.victim.device_id}", f"devices/{scene.mallory.device_id}"
    for topic_filter in (
        "#",
        "+/#",
        "+",
        "/#",
        "devices/#",
        "devices/+/cmd",
        "+/+/cmd",
        "$SYS/#",
        "$SYS",
        mine,
        f"{theirs}/cmd",
        f"{theirs}/#",
        f"{mine}/#/x",
        f"{mine}/a+",
        f"{mine}/" + "a" * 300,
    ):
        await raw.send(mqtt_packets.subscribe(topic_filter))
        head, body = await raw.next_packet()
        assert (head, body[-1]) == (SUBACK, NOT_AUTHORIZED), topic_filter
    for topic_filter in ("$share/g/#", f"$share/g/{mine}/cmd", f"$share/g/{theirs}/cmd", "$share//x", "$share/"):
        await raw.send(mqtt_packets.subscribe(topic_filter))
        head, body = await raw.next_packet()
        assert (head, body[-1]) == (SUBACK, SHARED), topic_filter
    for identifier in (1, 268_435_455):
        await raw.send(mqtt_packets.subscribe(f"{mine}/cmd", more=b"\x0b" + mqtt_packets.variable_byte_integer(identifier)))
        head, body = await raw.next_packet()
        assert (head, body[-1]) == (SUBACK, SUBSCRIPTION_IDS)
    await scene.owner.post(f"{scene.victim.path}/command", {"cmd": "STATUS"})
    assert (await scene.line.next_command())["cmd"] == "STATUS"
    await finished(raw)


RUDE: dict[str, Callable[[str], bytes]] = {
    "a topic alias that was never granted": lambda me: mqtt_packets.publish("", more=b"\x23\x00\x01"),
    "a topic alias with its topic": lambda me: (
        mqtt_packets.publish(f"{me}/state", more=b"\x23\xff\xff") + mqtt_packets.publish("", more=b"\x23\xff\xff")
    ),
    "topic alias 0": lambda me: mqtt_packets.publish(f"{me}/state", more=b"\x23\x00\x00"),
    "an empty topic": lambda me: mqtt_packets.publish(""),
    "QoS 3": lambda me: mqtt_packets.packet(0x36, mqtt_packets.utf8_string(f"{me}/state") + b"\x00\x01\x00x"),
    "packet id 0": lambda me: mqtt_packets.publish(f"{me}/state", qos=1, packet_id=0),
    "a topic that is no UTF-8": lambda me: mqtt_packets.publish(b"devices/\xff\xfe/state", qos=1),
    "a topic with half a surrogate pair": lambda me: mqtt_packets.publish(b"devices/\xed\xa0\x80/state", qos=1),
    "a filter that is no UTF-8": lambda me: mqtt_packets.subscribe(b"\xc3\x28"),
    "subscription identifier 0": lambda me: mqtt_packets.subscribe(f"{me}/cmd", more=b"\x0b\x00"),
    "a SUBSCRIBE without filters": lambda me: mqtt_packets.subscribe(),
    "a second CONNECT": lambda me: mqtt_packets.connect("x", "y"),
    "a CONNACK": lambda me: b"\x20\x03\x00\x00\x00",
    "an AUTH exchange": lambda me: b"\xf0\x00",
    "packet type 0": lambda me: b"\x00\x00",
    "a length of five bytes": lambda me: b"\x32\xff\xff\xff\xff\x7f",
    "a SUBSCRIBE of 100 MB": lambda me: b"\x82" + mqtt_packets.variable_byte_integer(100_000_000) + b"x" * 9,
    "properties longer than the packet": lambda me: mqtt_packets.packet(
        0x30, mqtt_packets.utf8_string(f"{me}/state") + mqtt_packets.variable_byte_integer(5_000) + b"x"
    ),
    "a property that does not exist": lambda me: mqtt_packets.publish(f"{me}/state", more=b"\x7f\x00"),
    "a property said twice": lambda me: mqtt_packets.publish(f"{me}/state", more=b"\x02\x00\x00\x00\x01\x02\x00\x00\x00\x02"),
}


@pytest.mark.parametrize("what", RUDE)
async def test_a_protocol_violation_closes_only_its_own_connection(scene: Scene, what: str) -> None:
    raw = await scene.raw()
    await raw.send(RUDE[what](f"devices/{scene.mallory.device_id}"))
    assert await raw.wait_closed()


async def test_an_oversize_publish_is_skipped_without_holding_memory(scene: Scene) -> None:
    before = resident_kib(scene.service)
    crowd = [await scene.raw(f"raw{number}") for number in range(4)]
    for raw in crowd:
        await raw.send(
            b"\x30"
            + mqtt_packets.variable_byte_integer(268_435_455)
            + mqtt_packets.utf8_string(f"devices/{scene.mallory.device_id}/telemetry")
        )
        for _ in range(200):
            await raw.send(b"x" * 64 * 1024)
    assert resident_kib(scene.service) < before + 32 * 1024
    assert (await scene.owner.raw.get(f"{scene.service.url}/readyz")).status_code == 200


def resident_kib(service: Service) -> int:
    assert service.process is not None
    status = Path(f"/proc/{service.process.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0])


async def test_thousands_of_user_properties_cost_only_their_bytes(scene: Scene) -> None:
    raw = await scene.raw()
    many = b"\x26\x00\x01a\x00\x01b" * 9_000
    own = f"devices/{scene.mallory.device_id}/telemetry"
    for number in range(1, 30):
        await raw.send(mqtt_packets.publish(own, b'{"t": 1}', qos=1, packet_id=number, more=many))
        assert (await raw.next_packet())[0] == PUBACK
    huge = b"\x26\x00\x01a" + mqtt_packets.utf8_string("v" * 65_535)
    await raw.send(mqtt_packets.publish(own, b'{"t": 2}', qos=1, packet_id=99, more=huge * 3))
    head, body = await raw.next_packet()
    assert (head, body[2]) == (PUBACK, QUOTA)


async def test_publishes_beyond_the_receive_maximum_wait(scene: Scene) -> None:
    raw = await scene.raw()
    own = f"devices/{scene.mallory.device_id}/telemetry"
    await raw.send(b"".join(mqtt_packets.publish(own, b'{"t": 1}', qos=1, packet_id=number) for number in range(1, 501)))
    for number in range(1, 501):
        head, body = await raw.next_packet()
        assert (head, body[:2]) == (PUBACK, struct.pack(">H", number))


async def test_retained_messages_of_devices_are_not_stored(scene: Scene) -> None:
    raw = await scene.raw()
    me = f"devices/{scene.mallory.device_id}"
    for number in range(1, 401):
        await raw.send(mqtt_packets.publish(f"{me}/mine/{number}", b"x" * 1_000, qos=1, packet_id=number, retain=True))
        assert (await raw.next_packet())[0] == PUBACK
    listener = await scene.raw("listener")
    await listener.send(mqtt_packets.subscribe(f"{me}/#"))
    assert (await listener.next_packet())[0] == SUBACK
    await listener.send(PING)
    assert (await listener.next_packet())[0] == PONG, "nothing was kept for it"


async def test_repeated_subscriptions_without_reading_fill_no_queue(scene: Scene) -> None:
    raw = await scene.raw()
    mine = f"devices/{scene.mallory.device_id}"
    slot = {"slot": 0, "onTs": 4_000_000_000, "offTs": 4_000_000_060}
    await scene.owner.post(f"{scene.mallory.path}/schedules", slot, expect=201)

    async def subscribe() -> None:
        """Until the sockets' buffers are full, whatever their size."""
        for number in range(1, 60_000):
            await raw.send(mqtt_packets.subscribe(f"{mine}/#", f"{mine}/sched", f"{mine}/+", packet_id=number))

    subscribing = asyncio.create_task(subscribe())
    await scene.until_figure("outbound_queue_messages", 1)
    for _ in range(20):
        assert await scene.figure("outbound_queue_messages") <= 64
        await asyncio.sleep(0.05)
    await cancel_tasks(subscribing)


WILLS = {
    "on another device's status": "devices/{victim}/status",
    "on another device's commands": "devices/{victim}/cmd",
    "on its own commands": "devices/{mallory}/cmd",
    "on its own plan": "devices/{mallory}/sched",
    "on a wildcard": "devices/+/status",
    "on everything": "#",
    "on $SYS": "$SYS/broker/uptime",
    "on its bare prefix": "devices/{mallory}/",
    "on a topic that is too long": "devices/{mallory}/" + "a" * 300,
}


@pytest.mark.parametrize("where", WILLS)
async def test_a_forbidden_will_refuses_the_connection(scene: Scene, where: str) -> None:
    topic = WILLS[where].format(victim=scene.victim.device_id, mallory=scene.mallory.device_id)
    name, password = scene.mallory.credentials["mqttUsername"], scene.mallory.credentials["mqttPassword"]
    raw = await mqtt_packets.open_raw(scene.service.mqtt_port, mqtt_packets.connect(name, password, will=(topic, b"offline")))
    scene.opened.append(raw)
    head, body = await raw.next_packet()
    assert (head, body[1]) in ((CONNACK, NOT_AUTHORIZED), (CONNACK, MALFORMED))
    assert await raw.wait_closed()


async def test_a_will_of_64_kib_closes_the_connection(scene: Scene) -> None:
    name, password = scene.mallory.credentials["mqttUsername"], scene.mallory.credentials["mqttPassword"]
    topic = f"devices/{scene.mallory.device_id}/status"
    raw = await mqtt_packets.open_raw(scene.service.mqtt_port, mqtt_packets.connect(name, password, will=(topic, b"x" * 65_535)))
    assert await raw.wait_closed()
    await raw.close()


async def test_no_client_id_or_user_name_takes_over_another_device(scene: Scene) -> None:
    """The attacker uses the victim's client id, with credentials of its own and with others."""
    theirs, own = scene.victim.device_id, scene.mallory.credentials
    for client_id in (theirs, "latchboard", "latchboard-telemetry-0"):
        login = mqtt_packets.connect(own["mqttUsername"], own["mqttPassword"], client_id)
        raw = await mqtt_packets.open_raw(scene.service.mqtt_port, login)
        head, body = await raw.next_packet()
        assert (head, body[1]) == (CONNACK, CLIENT_ID_REFUSED)
        await raw.close()
    for name, password in ((theirs, scene.mallory.credentials["mqttPassword"]), (theirs, ""), ("", ""), (theirs + "\0", "x")):
        raw = await mqtt_packets.open_raw(scene.service.mqtt_port, mqtt_packets.connect(name, password, theirs))
        head, body = await raw.next_packet()
        assert head == CONNACK
        assert body[1] in (0x86, NOT_AUTHORIZED, MALFORMED)
        await raw.close()
    enhanced = mqtt_packets.connect(
        scene.mallory.credentials["mqttUsername"],
        scene.mallory.credentials["mqttPassword"],
        more=b"\x15" + mqtt_packets.utf8_string("SCRAM-SHA-1"),
    )
    raw = await mqtt_packets.open_raw(scene.service.mqtt_port, enhanced)
    assert (await raw.next_packet())[1][1] == 0x8C
    await raw.close()


async def test_a_connection_without_connect_is_closed_in_time(scene: Scene) -> None:
    """Half-open connections of every kind, a slow one included: the broker closes and counts each."""
    port, ws_port = scene.service.mqtt_port, scene.service.ws_port
    before = await scene.figure('refused_total{reason="timeout"}')
    login = mqtt_packets.connect(scene.mallory.credentials["mqttUsername"], scene.mallory.credentials["mqttPassword"])
    stalled = [
        await mqtt_packets.open_raw(port),
        await mqtt_packets.open_raw(port, b"\x10"),
        await mqtt_packets.open_raw(port, login[:-1]),
        await mqtt_packets.open_raw(ws_port),
        await mqtt_packets.open_raw(ws_port, b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"),
    ]
    dribbling = await mqtt_packets.open_raw(port, login[:4])

    scene.opened += [*stalled, dribbling]

    async def dribble() -> None:
        for byte in login[4:-1]:
            await asyncio.sleep(0.5)
            try:
                await dribbling.send(bytes([byte]))
            except ConnectionError:
                return

    slow = asyncio.create_task(dribble())
    async with asyncio.timeout(TIMEOUT_S):
        closed = await asyncio.gather(*(_closed(raw) for raw in [*stalled, dribbling]))
    assert all(closed)
    slow.cancel()
    await asyncio.wait([slow])
    await scene.until_figure('refused_total{reason="timeout"}', before + 6)


async def _closed(raw: RawMqttConnection) -> bool:
    try:
        while await raw.reader.read(65_536):
            pass
    except ConnectionError:
        return True
    return True


async def test_a_silent_device_is_closed_after_its_keep_alive(scene: Scene) -> None:
    before = await scene.figure('closed_total{reason="keep_alive"}')
    raw = await scene.raw(keep_alive=1)
    head, body = await raw.next_packet()
    assert (head, body[0]) == (DISCONNECT, 0x8D)
    assert await raw.wait_closed()
    await scene.until_figure('closed_total{reason="keep_alive"}', before + 1)


async def test_the_metrics_page_shows_connections_messages_refusals_and_queues(scene: Scene) -> None:
    connects, up = await scene.figure("connects_total"), await scene.figure('messages_total{kind="telemetry"}')
    read, written = (
        await scene.figure('traffic_bytes_total{direction="inbound"}'),
        await scene.figure('traffic_bytes_total{direction="outbound"}'),
    )
    refused = await scene.figure('refused_total{reason="credentials"}')
    raw = await scene.raw()
    await raw.send(mqtt_packets.publish(f"devices/{scene.mallory.device_id}/telemetry", b'{"t": 1}', qos=1))
    assert (await raw.next_packet())[0] == PUBACK
    stranger = await mqtt_packets.open_raw(scene.service.mqtt_port, mqtt_packets.connect("dev_nobody", "x"))
    assert await stranger.wait_closed()
    await stranger.close()

    assert await scene.figure("connections") == 2
    assert await scene.figure("connects_total") == connects + 1
    assert await scene.figure('messages_total{kind="telemetry"}') == up + 1
    assert await scene.figure('refused_total{reason="credentials"}') == refused + 1
    assert await scene.figure('traffic_bytes_total{direction="inbound"}') > read + 100
    assert await scene.figure('traffic_bytes_total{direction="outbound"}') > written
    assert await scene.figure("inbound_queue_messages") == 0
    assert await scene.figure("devices_admitted") >= 2
