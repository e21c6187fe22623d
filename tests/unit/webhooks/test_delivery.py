"""The cleanup of a deleted webhook continues where its last batch ended, and does not skip rows that were locked for good."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

from domain.webhooks.delivery import CLEANUP_BATCH_ROWS, DeletedWebhookCleanup


class FakeDeliveries:
    """Unit of work and repository in one: delivery numbers by webhook; `locked` are held by another transaction."""

    def __init__(self, **numbers: range) -> None:
        self.numbers = {webhook_id: list(of_webhook) for webhook_id, of_webhook in numbers.items()}
        self.locked: set[int] = set()
        self.calls: list[tuple[str, int]] = []

    async def find_orphaned_webhook_id(self) -> Any:
        return next((webhook_id for webhook_id, numbers in self.numbers.items() if numbers), None)

    async def delete_batch_by_webhook(self, webhook_id: Any, limit: int, *, after: int = 0) -> list[int]:
        self.calls.append((webhook_id, after))
        deleted = [no for no in self.numbers[webhook_id] if no > after and no not in self.locked][:limit]
        self.numbers[webhook_id] = [no for no in self.numbers[webhook_id] if no not in deleted]
        return deleted

    @asynccontextmanager
    async def read(self, caller: Any = None) -> Any:
        yield self

    write = read

    @property
    def deliveries(self) -> FakeDeliveries:
        return self


def cleanup_of(deliveries: FakeDeliveries) -> DeletedWebhookCleanup:
    uow: Any = deliveries
    return DeletedWebhookCleanup(uow=uow)


async def test_each_batch_continues_where_the_last_one_ended() -> None:
    deliveries = FakeDeliveries(whk_a=range(1, 3 * CLEANUP_BATCH_ROWS + 1), whk_b=range(2_000, 2_002))
    cleanup = cleanup_of(deliveries)
    assert [await cleanup.run_once() for _ in range(5)] == [True, True, True, True, False]
    assert deliveries.calls == [("whk_a", CLEANUP_BATCH_ROWS * number) for number in range(4)] + [("whk_b", 0)]


async def test_rows_that_another_transaction_locked_are_deleted_later() -> None:
    deliveries = FakeDeliveries(whk_a=range(1, 2 * CLEANUP_BATCH_ROWS + 1))
    deliveries.locked = {1, 2}
    cleanup = cleanup_of(deliveries)
    assert [await cleanup.run_once() for _ in range(3)] == [True, True, False]
    assert deliveries.numbers["whk_a"] == [1, 2]
    deliveries.locked.clear()
    assert await cleanup.run_once()
    assert not await cleanup.run_once()
    assert deliveries.numbers["whk_a"] == []
