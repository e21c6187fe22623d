"""The hash chain of the event log: each record's hash covers its content and the hash of the record before it.

There is one chain per account and writer number (see `log_cursor`), because transactions of different writers commit side by
side. A record's content is what an audit export shows, in canonical JSON; so anybody can recompute the chain from an export.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from domain.events.model import Event
from domain.kernel.canonical_json import canonical_json, quote
from domain.kernel.domain_events import Json, JsonObject
from domain.kernel.ids import AccountId

NO_HASH: Final = "0" * 64
"""Before the first record of a chain."""


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The last record of a chain. `sequence` counts the records of the chain from 1, deleted ones included; `hash` is
    hexadecimal."""

    sequence: int = 0
    hash: str = NO_HASH
    position: int = 0


@dataclass(frozen=True, slots=True)
class ChainedRecord:
    """A stored event with its place in the chain of its account and writer. Events of older versions have the sequence 0."""

    event: Event
    sequence: int
    hash: str


def record_json(event: Event, sequence: int) -> str:
    """`canonical_json(record_object(event, sequence))`, written out for speed: every event of the service passes here."""
    return (
        f'{{"accountId":{quote(event.account_id)},"address":{quote(event.address)},"data":{canonical_json(event.payload)},'
        f'"description":{quote(event.description)},"deviceId":{quote(event.device_id or "")},'
        f'"deviceName":{quote(event.device_name or "")},"eventType":{quote(event.kind)},"id":{quote(event.event_id)},'
        f'"position":{event.position},"sequence":{sequence},"source":{quote(event.source)},"timestamp":{event.at_ms},'
        f'"writer":{event.writer}}}'
    )


def record_object(event: Event, sequence: int) -> JsonObject:
    """What is hashed of an event: all that an Owner sees of it, its data, and its place. Empty strings where it is of no
    device."""
    found: dict[str, Json] = {
        "id": event.event_id,
        "accountId": event.account_id,
        "deviceId": event.device_id or "",
        "deviceName": event.device_name or "",
        "eventType": event.kind,
        "description": event.description,
        "timestamp": event.at_ms,
        "source": event.source,
        "address": event.address,
        "data": event.payload,
        "position": event.position,
        "writer": event.writer,
        "sequence": sequence,
    }
    return found


def digest_of(record: str) -> bytes:
    """Of a record in canonical JSON: 32 bytes."""
    return hashlib.sha256(record.encode()).digest()


def link(previous: str, digest: bytes) -> str:
    """The hash of a record: SHA-256 of the hash before it and its digest, 32 bytes each, in hexadecimal."""
    return hashlib.sha256(bytes.fromhex(previous) + digest).hexdigest()


def chain_events(
    events: Iterable[Event], heads: Mapping[AccountId, ChainHead]
) -> tuple[list[ChainedRecord], dict[AccountId, ChainHead]]:
    """The events of one writer, in the order of their positions, as the next records of their accounts' chains; and the heads
    of the accounts that got records."""
    records: list[ChainedRecord] = []
    moved: dict[AccountId, ChainHead] = {}
    for event in events:
        account_id = event.account_id
        head = moved.get(account_id) or heads.get(account_id) or ChainHead()
        sequence = head.sequence + 1
        linked = link(head.hash, digest_of(record_json(event, sequence)))
        records.append(ChainedRecord(event, sequence, linked))
        moved[account_id] = ChainHead(sequence, linked, event.position)
    return records, moved
