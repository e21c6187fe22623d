"""MQTT 5 by hand, for packets that no client library would send. `broker.Raw` carries them."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from support.broker import Raw

CONNACK, PUBACK, PUBREC, PUBCOMP, SUBACK, PONG, DISCONNECT = 0x20, 0x40, 0x50, 0x70, 0x90, 0xD0, 0xE0
PING = b"\xc0\x00"


def number(value: int) -> bytes:
    """A variable byte integer."""
    out = b""
    while True:
        value, low = divmod(value, 128)
        out += bytes([low | (0x80 if value else 0)])
        if not value:
            return out


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(raw)) + raw


def frame(head: int, body: bytes) -> bytes:
    return bytes([head]) + number(len(body)) + body


def properties(raw: bytes = b"") -> bytes:
    return number(len(raw)) + raw


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
    body = text("MQTT") + bytes([5, flags]) + struct.pack(">H", keep_alive) + properties(more) + text(client_id)
    if will:
        body += properties(will_more) + text(will[0]) + text(will[1])
    return frame(0x10, body + text(username) + text(password))


def publish(
    topic: str | bytes, payload: bytes = b"x", *, qos: int = 0, packet_id: int = 1, retain: bool = False, more: bytes = b""
) -> bytes:
    head = 0x30 | qos << 1 | (1 if retain else 0)
    return frame(head, text(topic) + (struct.pack(">H", packet_id) if qos else b"") + properties(more) + payload)


def subscribe(*filters: str | bytes, packet_id: int = 1, more: bytes = b"") -> bytes:
    body = struct.pack(">H", packet_id) + properties(more)
    return frame(0x82, body + b"".join(text(each) + b"\x01" for each in filters))


async def opened(port: int, first: bytes = b"") -> Raw:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    raw = Raw(reader, writer)
    if first:
        await raw.say(first)
    return raw


async def logged_in(port: int, credentials: dict[str, Any], client_id: str = "raw", **options: Any) -> Raw:
    raw = await opened(port, connect(credentials["mqttUsername"], credentials["mqttPassword"], client_id, **options))
    head, body = await raw.packet()
    assert (head, body[1]) == (CONNACK, 0), body
    return raw
