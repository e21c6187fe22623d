"""What the hash chain of the event log costs: transactions of events with and without it, side by side.

    python benches/event_hash_chain.py [URL]        a file of SQLite in a new directory, or `postgresql+asyncpg://…` of an empty database

"without" stores no sequence, hash and head at all. Processor time of this process, medians of rounds that alternate. Figures are
printed, nothing is asserted.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from adapters.engine import native
from adapters.randomness import RandomIdAndSecretGenerator
from adapters.storage.sql.repositories import events as repository
from adapters.storage.sql.statements import bulk_insert
from adapters.storage.sql.tables import events as table
from domain.accounts.model import Account
from domain.events import hash_chain
from domain.events.model import Event, with_position
from event_log import ACCOUNT, event, opened

ROUNDS = 21
HASHERS = {"engine": native.chain_events, "Python": hash_chain.chain_events, "without": hash_chain.chain_events}
LINKED = repository._plan_append
UNLINKED_ROWS = bulk_insert(table, (*repository.EVENT.names, "public"), json=("payload",))


def unlinked(events: Sequence[Event], reserved: Any, hasher: object) -> Any:
    writer = reserved.writer
    numbered = [with_position(event, number, writer) for event, number in zip(events, reserved.positions, strict=True)]
    added = Counter(event.account_id for event in events)
    return numbered, [
        (UNLINKED_ROWS, [repository._insert_values(event) for event in numbered]),
        (repository.ADD_TO_TOTALS, [(at, writer, count) for at, count in sorted(added.items())]),
        (repository.ADD_TO_COUNTS, repository._count_rows(Counter(map(repository._counter_key, numbered)))),
    ]


async def spent_us(uow: Any, way: str, batch: int, count: int) -> float:
    """Processor time per event."""
    ids = RandomIdAndSecretGenerator()
    repository._plan_append = unlinked if way == "without" else LINKED
    batches = [[event(number, ids) for number in range(first, first + batch)] for first in range(0, count, batch)]
    began = time.process_time()
    for events in batches:
        async with uow.write() as tx:
            await tx.events.append_many(events, HASHERS[way])
    return (time.process_time() - began) / count * 1e6


async def compare(uow: Any, batch: int, count: int) -> None:
    spent: dict[str, list[float]] = {way: [] for way in HASHERS}
    for _ in range(ROUNDS):
        for way in random.sample(list(spent), len(spent)):
            spent[way].append(await spent_us(uow, way, batch, count))
    shown = []
    for way, found in spent.items():
        ratio = statistics.median(one / base for one, base in zip(found, spent["without"], strict=True))
        shown.append(f"{way} {statistics.median(found):.1f} µs ({100 * (ratio - 1):+.1f} %)")
    print(f"{batch} events a transaction: {', '.join(shown)}", flush=True)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite+aiosqlite:///{folder}/log.db"
        database, uow = await opened(url)
        async with uow.write() as tx:
            await tx.accounts.add(Account(ACCOUNT, "Acme", "free", 0))
        for batch, count in ((1, 600), (10, 2_000), (256, 7_680)):
            await compare(uow, batch, count)
        await database.stop()


if __name__ == "__main__":
    asyncio.run(main())
