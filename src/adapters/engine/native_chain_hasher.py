"""The hash chain of the event log by the extension; `domain.events.hash_chain.chain_events` defines it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adapters.engine import _native
from domain.events.hash_chain import ChainPlace, EventChainHead
from domain.events.model import Event
from domain.kernel.ids import AccountId


def chain_events(events: Sequence[Event], heads: Mapping[AccountId, EventChainHead]) -> list[ChainPlace]:
    return _native.chain_events(events, {account: (head.sequence, head.hash) for account, head in heads.items()})
