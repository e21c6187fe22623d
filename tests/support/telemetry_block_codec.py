"""Blocks of telemetry messages in Python: the readable definition of `rust/engine/src/partitions.rs`.

All numbers are little-endian. A block is its version (u8, 1), the number of messages (u32), the CRC-32 of everything after these
nine bytes (u32), and the messages. A message is the device number (u32), the arrival in Unix milliseconds (i64), the kind (u8;
0 is telemetry), the length of the payload (u32), and the payload.

The law: a block is read whole or refused whole.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from zlib import crc32

from domain.partitions.model import partition_of

VERSION = 1
TELEMETRY = 0
MAX_BLOCK_BYTES = 512 * 1024
_HEADER = struct.Struct("<BII")
_MESSAGE = struct.Struct("<IqBI")

RawMessage = tuple[int, int, bytes]
"""(device number, arrival in Unix ms, payload)."""


def split_into_blocks(
    messages: Sequence[RawMessage], partitions: int, max_bytes: int = MAX_BLOCK_BYTES
) -> list[tuple[int, bytes]]:
    """(partition, block) pairs. The blocks of a partition follow each other in the order of arrival. No block has more than
    `max_bytes`, unless a single message does."""
    blocks: list[tuple[int, bytes]] = []
    packed: dict[int, list[bytes]] = defaultdict(list)
    for device_no, arrived_ms, payload in messages:
        partition = partition_of(device_no, partitions)
        message = _MESSAGE.pack(device_no, arrived_ms, TELEMETRY, len(payload)) + payload
        if packed[partition] and _HEADER.size + sum(map(len, packed[partition])) + len(message) > max_bytes:
            blocks.append((partition, _block(packed.pop(partition))))
        packed[partition].append(message)
    return blocks + [(partition, _block(packed[partition])) for partition in sorted(packed)]


def read_block(block: bytes) -> list[RawMessage]:
    """Raises ValueError for anything that is not a block."""
    if len(block) < _HEADER.size:
        raise ValueError("the block ends too early")
    version, count, crc = _HEADER.unpack_from(block)
    if version != VERSION:
        raise ValueError("the version is unknown")
    if crc32(block[_HEADER.size :]) != crc:
        raise ValueError("the checksum is that of other bytes")
    messages: list[RawMessage] = []
    at = _HEADER.size
    for _ in range(count):
        at = _read_message(block, at, messages)
    if at != len(block):
        raise ValueError("bytes follow the last message")
    return messages


def _read_message(block: bytes, at: int, messages: list[RawMessage]) -> int:
    """Where the next message begins."""
    if len(block) < at + _MESSAGE.size:
        raise ValueError("the block ends too early")
    device_no, arrived_ms, kind, length = _MESSAGE.unpack_from(block, at)
    begin = at + _MESSAGE.size
    end: int = begin + length
    if kind != TELEMETRY:
        raise ValueError("the kind of the message is unknown")
    if len(block) < end:
        raise ValueError("the block ends too early")
    messages.append((device_no, arrived_ms, block[begin:end]))
    return end


def _block(messages: Sequence[bytes]) -> bytes:
    body = b"".join(messages)
    return _HEADER.pack(VERSION, len(messages), crc32(body)) + body
