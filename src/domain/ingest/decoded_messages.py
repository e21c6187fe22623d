"""What devices sent, decoded by their firmware profile (`non_telemetry_message_ingest_service.py`).

Decoding runs before the transaction and applying inside it, because the engine must have evaluated the readings of stock firmware
before the transaction begins. Answers to devices are returned as `AfterCommitDeviceWorkList`; the caller sends them after the
commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.devices.link import InboundEvent
from domain.devices.messages import DeviceReport
from domain.kernel.clock import SECOND_MS

CONNECT_SEQUENCE_MS = 10 * SECOND_MS


@dataclass(frozen=True, slots=True)
class DecodedMessage:
    """An event and the reports in it; `reports` is empty for events that are not messages."""

    event: InboundEvent
    reports: tuple[DeviceReport, ...] = ()


@dataclass(slots=True)
class DecodedBatch:
    messages: list[DecodedMessage] = field(default_factory=list)
    telemetry: list[tuple[int, int, bytes]] = field(default_factory=list)
    faults: list[tuple[int, str, str]] = field(default_factory=list)
    """(device number, code, reason) of messages that cannot be decoded."""
