"""Encodes MQTT 5 packets that no client library would send. `broker.RawMqttConnection` sends them."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from support.broker import RawMqttConnection

CONNACK, PUBACK, PUBREC, PUBCOMP, SUBACK, PONG, DISCONNECT = 0x20, 0x40, 0x50, 0x70, 0x90, 0xD0, 0xE0
PING = b"\xc0\x00"


def variable_byte_integer(value: int) -> bytes:
    """A variable byte integer."""
    out = b""
    while True:
        value, low = divmod(value, 128)
        out += bytes([low | (0x80 if value else 0)])
        if not value:
            return out


def utf8_string(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(raw)) + raw


def packet(head: int, body: bytes) -> bytes:
    return bytes([head]) + variable_byte_integer(len(body)) + body


def properties(raw: bytes = b"") -> bytes:
    return variable_byte_integer(len(raw)) + raw


def connect(
    username: str,
    password: str,
    client_id: str = "raw",
    *,
    more: bytes = b"",
    will: tuple[str | bytes, bytes] | None = None,
    will_more: bytes = b"",
    keep_alive: int = 60,
    clean: bool = True,
) -> bytes:
    """`more`: properties of the CONNECT; the will is retained, at QoS 1."""
    flags = 0xC0 | (0x02 if clean else 0) | (0x2C if will else 0)
    body = utf8_string("MQTT") + bytes([5, flags]) + struct.pack(">H", keep_alive) + properties(more) + utf8_string(client_id)
    if will:
        body += properties(will_more) + utf8_string(will[0]) + utf8_string(will[1])
    return packet(0x10, body + utf8_string(username) + utf8_string(password))


def publish(
    topic: str | bytes, payload: bytes = b"x", *, qos: int = 0, packet_id: int = 1, retain: bool = False, more: bytes = b""
) -> bytes:
    head = 0x30 | qos << 1 | (1 if retain else 0)
    return packet(head, utf8_string(topic) + (struct.pack(">H", packet_id) if qos else b"") + properties(more) + payload)


def subscribe(*filters: str | bytes, packet_id: int = 1, more: bytes = b"") -> bytes:
    body = struct.pack(">H", packet_id) + properties(more)
    return packet(0x82, body + b"".join(utf8_string(each) + b"\x01" for each in filters))


async def open_raw(port: int, first: bytes = b"") -> RawMqttConnection:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    raw = RawMqttConnection(reader, writer)
    if first:
        await raw.send(first)
    return raw


async def open_connected(port: int, credentials: dict[str, Any], client_id: str = "raw", **options: Any) -> RawMqttConnection:
    raw = await open_raw(port, connect(credentials["mqttUsername"], credentials["mqttPassword"], client_id, **options))
    head, body = await raw.next_packet()
    assert (head, body[1]) == (CONNACK, 0), body
    return raw
