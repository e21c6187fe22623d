"""Taking away what a deleted webhook leaves: on from where the last step ended, and again from the front when that was the
end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

from domain.webhooks.cleanup import ROWS_PER_STEP, WebhookCleanup


class Rows:
    """Deliveries by number; `held` are those that another transaction is at."""

    def __init__(self, **of: range) -> None:
        self.of = {name: list(numbers) for name, numbers in of.items()}
        self.held: set[int] = set()
        self.asked: list[tuple[str, int]] = []

    async def left_over(self) -> Any:
        return next((name for name, numbers in self.of.items() if numbers), None)

    async def forget_of(self, webhook_id: Any, limit: int, *, after: int = 0) -> list[int]:
        self.asked.append((webhook_id, after))
        gone = [no for no in self.of[webhook_id] if no > after and no not in self.held][:limit]
        self.of[webhook_id] = [no for no in self.of[webhook_id] if no not in gone]
        return gone

    @asynccontextmanager
    async def transaction(self) -> Any:
        yield self

    read = write = transaction

    @property
    def deliveries(self) -> Rows:
        return self


def sweeping(rows: Rows) -> WebhookCleanup:
    uow: Any = rows
    return WebhookCleanup(uow=uow)


async def test_each_step_goes_on_where_the_last_one_ended() -> None:
    rows = Rows(whk_a=range(1, 3 * ROWS_PER_STEP + 1), whk_b=range(2_000, 2_002))
    sweep = sweeping(rows)
    assert [await sweep.run_once() for _ in range(5)] == [True, True, True, True, False]
    assert rows.asked == [("whk_a", ROWS_PER_STEP * number) for number in range(4)] + [("whk_b", 0)]


async def test_what_others_held_is_come_back_to() -> None:
    rows = Rows(whk_a=range(1, 2 * ROWS_PER_STEP + 1))
    rows.held = {1, 2}
    sweep = sweeping(rows)
    assert [await sweep.run_once() for _ in range(3)] == [True, True, False]
    assert rows.of["whk_a"] == [1, 2]
    rows.held.clear()
    assert await sweep.run_once()
    assert not await sweep.run_once()
    assert rows.of["whk_a"] == []
