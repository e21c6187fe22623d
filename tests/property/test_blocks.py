"""Blocks of messages: what goes in comes out, equal in Rust and Python, and nothing that is damaged is read."""

from __future__ import annotations

import os
import random
import struct
from zlib import crc32

import pytest

from adapters.engine._native import RawTelemetryBatch
from domain.partitions.model import HASH_BITS, hash_of, hash_range, partition_of
from support.telemetry_block_codec import RawMessage, read_block, split_into_blocks

CASES = int(os.environ.get("LATCHBOARD_PROPERTY_CASES", "2000")) // 10
SEED = int(os.environ.get("LATCHBOARD_PROPERTY_SEED", "0"))
DEVICES = (0, 1, 2, 3, 1_000, 65_535, 2**24 + 5, 2**31 - 1)
TIMES = (0, 1, -1, 1_790_000_000_000, 2**63 - 1, -(2**63))


def messages_of(chance: random.Random) -> list[RawMessage]:
    devices = [chance.choice((chance.choice(DEVICES), chance.randrange(2**31))) for _ in range(chance.randint(1, 20))]
    return [
        (chance.choice(devices), chance.choice(TIMES), chance.randbytes(chance.choice((0, 1, 2, 70, 200, 4_000))))
        for _ in range(chance.randrange(60))
    ]


def test_blocks_are_equal_in_rust_and_python_and_keep_every_message_in_order() -> None:
    for number in range(SEED, SEED + CASES):
        chance = random.Random(number)
        messages, count, max_bytes = messages_of(chance), chance.choice((1, 3, 64, 256)), chance.choice((40, 500, 9_000, 2**19))
        blocks = RawTelemetryBatch(messages).blocks(count, max_bytes)
        assert blocks == split_into_blocks(messages, count, max_bytes), number
        for partition in {partition for partition, _ in blocks}:
            mine = [block for each, block in blocks if each == partition]
            expected = [message for message in messages if partition_of(message[0], count) == partition]
            assert RawTelemetryBatch.from_blocks(mine).messages() == expected, number
            assert [message for block in mine for message in read_block(block)] == expected, number
            assert all(len(block) <= max_bytes or len(read_block(block)) == 1 for block in mine), number


def test_the_default_bound_of_a_block_is_half_a_megabyte() -> None:
    blocks = RawTelemetryBatch([(1, 0, bytes(64 * 1024))] * 20).blocks(64)
    assert [len(read_block(block)) for _, block in blocks] == [7, 7, 6]
    assert blocks == split_into_blocks([(1, 0, bytes(64 * 1024))] * 20, 64)


def damaged(chance: random.Random, block: bytes) -> bytes:
    at = chance.randrange(len(block))
    match chance.randrange(5):
        case 0:
            return block[:at]
        case 1:
            return block + chance.randbytes(chance.randint(1, 30))
        case 2:
            return block[:at] + bytes((block[at] ^ 1 << chance.randrange(8),)) + block[at + 1 :]
        case 3:
            return block[:at] + block[at + 1 :]
        case _:
            return block[:at] + chance.randbytes(1) + block[at:]


def test_a_damaged_block_is_refused_by_both() -> None:
    for number in range(SEED, SEED + CASES * 10):
        chance = random.Random(number)
        whole = RawTelemetryBatch([(1, 5, b'{"t": 1}'), (2, 6, chance.randbytes(30))]).blocks(1)[0][1]
        broken = damaged(chance, whole)
        if broken == whole:
            continue
        with pytest.raises(ValueError):
            read_block(broken)
        with pytest.raises(ValueError, match=r"block 1 cannot be read at byte \d+: "):
            RawTelemetryBatch.from_blocks([whole, broken])


def test_any_bytes_with_a_right_checksum_are_read_alike() -> None:
    """The checksum keeps damage out; what gets past it is read by the same rules."""
    read = 0
    for number in range(SEED, SEED + CASES * 10):
        chance = random.Random(number)
        message = struct.pack("<IqBI", 7, 9, chance.choice((0, 0, 0, 1)), chance.choice((0, 3, 4, 2**32 - 1))) + chance.randbytes(
            3
        )
        body = (message * chance.randint(0, 3))[: chance.choice((None, -1, -3, 20))] + chance.randbytes(chance.choice((0, 0, 9)))
        count = chance.choice((0, 1, 2, 3, 2**32 - 1))
        block = struct.pack("<BII", chance.choice((1, 1, 1, 2)), count, crc32(body)) + body
        found: list[list[RawMessage] | None] = []
        for reading in (read_block, lambda one: RawTelemetryBatch.from_blocks([one]).messages()):
            try:
                found.append(reading(block))
            except ValueError:
                found.append(None)
        assert found[0] == found[1], (number, block)
        read += found[0] is not None
    assert read > CASES // 10


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (b"", "block 0 cannot be read at byte 0: the block ends too early"),
        (b"\x02" + bytes(8), "block 0 cannot be read at byte 0: the version is unknown"),
        (b"\x01" + bytes(9), "block 0 cannot be read at byte 5: the checksum is that of other bytes"),
        (struct.pack("<BII", 1, 9, 0), "block 0 cannot be read at byte 1: more messages are announced than there is room for"),
        (struct.pack("<BII", 1, 0, crc32(b"x")) + b"x", "block 0 cannot be read at byte 9: bytes follow the last message"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where(block: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        RawTelemetryBatch.from_blocks([block])


def test_no_messages_make_no_blocks_and_no_partition_is_an_error() -> None:
    assert RawTelemetryBatch([]).blocks(64) == []
    assert RawTelemetryBatch.from_blocks([]).messages() == []
    with pytest.raises(ValueError, match="there must be a partition"):
        RawTelemetryBatch([]).blocks(0)


@pytest.mark.parametrize("count", [1, 3, 64, 100, 256])
def test_a_partition_is_a_range_of_hashes_and_the_ranges_leave_nothing_out(count: int) -> None:
    ranges = [hash_range(partition, count) for partition in range(count)]
    assert [low for low, _ in ranges] == [0, *[high + 1 for _, high in ranges[:-1]]]
    assert ranges[-1][1] == 2**HASH_BITS - 1
    chance = random.Random(SEED)
    for device_no in [*DEVICES, *[chance.randrange(2**31) for _ in range(2_000)]]:
        low, high = ranges[partition_of(device_no, count)]
        assert low <= hash_of(device_no) <= high


def test_device_numbers_in_a_row_spread_evenly() -> None:
    sizes = [0] * 64
    for device_no in range(1, 64_001):
        sizes[partition_of(device_no, 64)] += 1
    assert 990 <= min(sizes) <= max(sizes) <= 1_010
