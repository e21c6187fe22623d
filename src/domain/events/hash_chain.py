"""The hash chain of the event log: each record's hash covers its content and the hash of the record before it.

There is one chain per account and writer number (see `cursors.py`), because transactions of different writers commit side by
side. A record's content is what an audit export shows, in canonical JSON; so anybody can recompute the chain from an export.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from domain.events.model import Event
from domain.kernel.canonical_json import canonical_json, quote
from domain.kernel.ids import AccountId

NO_HASH: Final = "0" * 64
"""Before the first record of a chain."""


@dataclass(frozen=True, slots=True)
class EventChainHead:
    """The last record of a chain. `sequence` counts the records of the chain from 1, deleted ones included; `hash` is
    hexadecimal."""

    sequence: int = 0
    hash: str = NO_HASH
    position: int = 0


CHAIN_START: Final = EventChainHead()


@dataclass(frozen=True, slots=True)
class ChainedEvent:
    """A stored event with its place in the chain of its account and writer. Events of older versions have the sequence 0."""

    event: Event
    sequence: int
    hash: str


def record_json(event: Event, sequence: int) -> str:
    """What is hashed of an event, in canonical JSON: all that an Owner sees of it, its data, and its place. Empty strings where
    it is of no device."""
    return (
        f'{{"accountId":{quote(event.account_id)},"address":{quote(event.address)},"data":{canonical_json(event.payload)},'
        f'"description":{quote(event.description)},"deviceId":{quote(event.device_id or "")},'
        f'"deviceName":{quote(event.device_name or "")},"eventType":{quote(event.kind)},"id":{quote(event.event_id)},'
        f'"position":{event.position},"sequence":{sequence},"source":{quote(event.source)},"timestamp":{event.at_ms},'
        f'"writer":{event.writer}}}'
    )


def digest_of(record: str) -> bytes:
    """Of a record in canonical JSON: 32 bytes."""
    return hashlib.sha256(record.encode()).digest()


def link(previous: str, digest: bytes) -> str:
    """The hash of a record: SHA-256 of the hash before it and its digest, 32 bytes each, in hexadecimal."""
    return hashlib.sha256(bytes.fromhex(previous) + digest).hexdigest()


ChainPlace = tuple[int, str]
"""Sequence and hash of a record."""

ChainHasher = Callable[[Sequence[Event], Mapping[AccountId, EventChainHead]], list[ChainPlace]]
"""Like `chain_events`."""


def chain_events(events: Sequence[Event], heads: Mapping[AccountId, EventChainHead]) -> list[ChainPlace]:
    """The places of one writer's events, in the order of their positions, as the next records of their accounts' chains.

    The service uses the engine's hasher, which equals this definition."""
    places: list[ChainPlace] = []
    newest = {account: (head.sequence, head.hash) for account, head in heads.items()}
    for event in events:
        sequence, previous = newest.get(event.account_id, (0, NO_HASH))
        place = sequence + 1, link(previous, digest_of(record_json(event, sequence + 1)))
        places.append(place)
        newest[event.account_id] = place
    return places


def heads_after(events: Sequence[Event], places: Sequence[ChainPlace]) -> dict[AccountId, EventChainHead]:
    """The heads of the accounts that got records."""
    last = {event.account_id: number for number, event in enumerate(events)}
    return {account: EventChainHead(*places[number], events[number].position) for account, number in last.items()}
