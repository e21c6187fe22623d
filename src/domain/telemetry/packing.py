"""The stored form of readings: one row per message, a few bytes per reading. docs/explanation/engine.md describes the
format in full.

A packed row is a sequence of readings. Each starts with a varint `metric number * 8 + tag` (unsigned LEB128), then the value:
tag 0 false, 1 true, 2 an IEEE double (little endian), 3 text (varint length, UTF-8), 4 a whole number (zigzag varint).
A number has tag 4 exactly when it is whole, below 2^31 in magnitude and not -0.0. So equal readings have equal bytes, and the
row's digest, the CRC-32 of the bytes as a signed 32-bit integer, identifies a message that was delivered twice.
A row whose time is the arrival because its device reported a later one starts with the byte 5 and that time (zigzag varint,
relative to the row's time).

A checkpoint (the latest values of a device) is: version 1, the newest time (zigzag), then per metric a packed reading, the
reading's own time and its arrival (zigzag, relative to the newest time) and its unit (varint length + 1, 0 for none).
After the byte 6 follow, in the same form, readings of a later time that rules do not see; their own time stands for the arrival.
Every decoder raises ValueError for bytes that no encoder wrote.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from domain.rules.model import MetricValue
from domain.rules.ports import UnpackedReading

FALSE, TRUE, DOUBLE, TEXT, WHOLE, REPORTED, LATER = range(7)
LATEST_VERSION = 1
_WHOLE_LIMIT = 2**31
_NEGATIVE_ZERO = struct.pack("<d", -0.0)


@dataclass(frozen=True, slots=True)
class CheckpointMetricValue:
    metric_no: int
    value: MetricValue
    ts_ms: int
    arrived_ms: int
    unit: str | None


def pack_readings(readings: Iterable[tuple[int, MetricValue]], ahead_ms: int | None = None) -> bytes:
    """Pack (metric number, value) pairs into one row. `ahead_ms`: how far the reported time is after the row's time."""
    out = bytearray()
    if ahead_ms is not None:
        _put_varint(out, REPORTED)
        _put_varint(out, _zigzag(ahead_ms))
    for metric_no, value in readings:
        _put_reading(out, metric_no, value)
    return bytes(out)


def row_digest(packed: bytes) -> int:
    """CRC-32 as a signed 32-bit integer, which fits an INTEGER column of every database."""
    unsigned = zlib.crc32(packed)
    return unsigned - 2**32 if unsigned >= 2**31 else unsigned


def unpack_readings(packed: bytes) -> list[tuple[int, MetricValue]]:
    return unpack_row(packed)[1]


def unpack_rows(rows: Iterable[tuple[int, bytes]], metric_no: int | None = None) -> list[UnpackedReading]:
    """The readings of one metric or of all, row by row."""
    found: list[UnpackedReading] = []
    for ts_ms, packed in rows:
        ahead_ms, readings = unpack_row(packed)
        reported_ms = None if ahead_ms is None else ts_ms + ahead_ms
        for number, value in readings:
            if metric_no is None or number == metric_no:
                found.append((ts_ms, number, *value_columns(value), reported_ms))
    return found


def unpack_row(packed: bytes) -> tuple[int | None, list[tuple[int, MetricValue]]]:
    """How far the reported time is ahead of the row's, if it is, and the readings."""
    cursor = _PackedReadingReader(packed)
    ahead_ms = cursor.read_ahead()
    readings = []
    while not cursor.is_at_end:
        readings.append(cursor.read_reading())
    return ahead_ms, readings


def value_columns(value: MetricValue) -> tuple[float | None, str | None]:
    """Value and text as the API shows them; a boolean has both."""
    if isinstance(value, bool):
        return (1.0, "true") if value else (0.0, "false")
    return (None, value) if isinstance(value, str) else (value, None)


def pack_latest(newest_ms: int, metrics: Iterable[CheckpointMetricValue], later: Sequence[CheckpointMetricValue] = ()) -> bytes:
    """`later`: values of a later time than those of `metrics`, which rules see."""
    out = bytearray([LATEST_VERSION])
    _put_varint(out, _zigzag(newest_ms))
    for metric in metrics:
        _put_latest(out, newest_ms, metric)
    if later:
        out.append(LATER)
    for metric in later:
        _put_latest(out, newest_ms, metric)
    return bytes(out)


def unpack_latest(latest: bytes) -> tuple[int, list[CheckpointMetricValue], list[CheckpointMetricValue]]:
    """The newest time, the metrics in the order they were first reported, and the later values that rules do not see."""
    cursor = _PackedReadingReader(latest)
    if cursor.read_bytes(1)[0] != LATEST_VERSION:
        raise ValueError("unsupported checkpoint version")
    newest_ms = cursor.read_signed()
    metrics: list[CheckpointMetricValue] = []
    later: list[CheckpointMetricValue] = []
    found = metrics
    while not cursor.is_at_end:
        if found is metrics and cursor.skip(LATER):
            found = later
        found.append(cursor.read_latest(newest_ms))
    return newest_ms, metrics, later


def _put_latest(out: bytearray, newest_ms: int, metric: CheckpointMetricValue) -> None:
    _put_reading(out, metric.metric_no, metric.value)
    _put_varint(out, _zigzag(metric.ts_ms - newest_ms))
    _put_varint(out, _zigzag(metric.arrived_ms - newest_ms))
    unit = None if metric.unit is None else metric.unit.encode()
    _put_varint(out, 0 if unit is None else len(unit) + 1)
    out += unit or b""


def _put_reading(out: bytearray, metric_no: int, value: MetricValue) -> None:
    if isinstance(value, bool):
        _put_varint(out, metric_no * 8 + (TRUE if value else FALSE))
    elif isinstance(value, str):
        text = value.encode()
        _put_varint(out, metric_no * 8 + TEXT)
        _put_varint(out, len(text))
        out += text
    elif _is_whole(value):
        _put_varint(out, metric_no * 8 + WHOLE)
        _put_varint(out, _zigzag(int(value)))
    else:
        _put_varint(out, metric_no * 8 + DOUBLE)
        out += struct.pack("<d", value)


def _is_whole(value: float) -> bool:
    return abs(value) < _WHOLE_LIMIT and value.is_integer() and struct.pack("<d", value) != _NEGATIVE_ZERO


def _zigzag(number: int) -> int:
    return number * 2 if number >= 0 else -number * 2 - 1


def _put_varint(out: bytearray, number: int) -> None:
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


class _PackedReadingReader:
    """Reads forward. Raises ValueError for missing bytes and unknown tags."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._data)

    def read_bytes(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise ValueError("packed readings end in the middle of a value")
        part = self._data[self._position : end]
        self._position = end
        return part

    def read_varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self.read_bytes(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80 and number < 2**64:
                return number
        raise ValueError("packed readings contain a number that is too long")

    def read_signed(self) -> int:
        zigzag = self.read_varint()
        return zigzag // 2 if zigzag % 2 == 0 else -(zigzag // 2) - 1

    def read_ahead(self) -> int | None:
        return self.read_signed() if self.skip(REPORTED) else None

    def skip(self, mark: int) -> bool:
        """Whether the next byte is this mark, which is then behind."""
        is_next = self._data[self._position : self._position + 1] == bytes([mark])
        self._position += is_next
        return is_next

    def read_latest(self, newest_ms: int) -> CheckpointMetricValue:
        metric_no, value = self.read_reading()
        ts_ms, arrived_ms = newest_ms + self.read_signed(), newest_ms + self.read_signed()
        size = self.read_varint()
        unit = None if size == 0 else self.read_bytes(size - 1).decode()
        return CheckpointMetricValue(metric_no, value, ts_ms, arrived_ms, unit)

    def read_reading(self) -> tuple[int, MetricValue]:
        key = self.read_varint()
        return key // 8, self._read_value(key % 8)

    def _read_value(self, tag: int) -> MetricValue:
        if tag in (FALSE, TRUE):
            return tag == TRUE
        if tag == DOUBLE:
            return float(struct.unpack("<d", self.read_bytes(8))[0])
        if tag == TEXT:
            return self.read_bytes(self.read_varint()).decode()
        if tag == WHOLE:
            return float(self.read_signed())
        raise ValueError(f"packed readings contain the unknown tag {tag}")
