"""Group commit: the writer shares commits, survives disk errors, and no wait is without a timeout."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import TextClause, text

from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.sqlite import connections
from adapters.storage.sql.sqlite import writer as group_commit
from adapters.storage.sql.sqlite.backend import SqliteBackend
from adapters.storage.sql.sqlite.connections import SqliteConnection, WalCheckpointer
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from domain.kernel.errors import Unavailable, UnstorableValue
from support.empty_database import empty_sqlite
from support.storage import an_account
from support.waiting import TIMEOUT_S, until

SHORT_S = 0.3


class Bench:
    """A backend whose writing connection fails or stalls at chosen statements."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backend = SqliteBackend(
            path, acquire_timeout_s=TIMEOUT_S, transaction_timeout_s=TIMEOUT_S, busy_timeout_ms=int(TIMEOUT_S * 1_000)
        )
        self.uow = SqlUnitOfWork(self.backend)
        self.fails: dict[str, Exception] = {}
        self.stalls: dict[str, asyncio.Event] = {}
        self.stalled = asyncio.Event()

    async def start(self) -> None:
        await self.backend.start()
        connection = self.backend.writer.connection
        fetch = connection.fetch

        async def fetch_or_fail(sql: str, params: Any = ()) -> Any:
            if sql in self.stalls:
                self.stalled.set()
                await self.stalls[sql].wait()
            if sql in self.fails:
                raise self.fails.pop(sql)
            return await fetch(sql, params)

        connection.fetch = fetch_or_fail  # type: ignore[method-assign]

    async def add(self, calls: list[int] | None = None) -> Any:
        account = an_account()
        async with self.uow.write() as tx:
            await tx.accounts.add(account)
            if calls is not None:
                tx.after_commit(lambda: calls.append(1))
        return account.account_id

    def shorten(self, patch: pytest.MonkeyPatch, *names: str) -> None:
        """For a test that waits for the end of a time limit: only of that one, so that no other ends on a busy machine."""
        for name in names:
            for part in (self.backend, self.backend.writer, self.backend._readers):
                if hasattr(part, name):
                    patch.setattr(part, name, SHORT_S)

    def stored(self) -> set[str]:
        connection = sqlite3.connect(self.path)
        rows = connection.execute("SELECT account_id FROM accounts").fetchall()
        connection.close()
        return {row[0] for row in rows}


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(group_commit, "MAX_GROUP_S", TIMEOUT_S)
    path = tmp_path / "db"
    database = SqlDatabase(empty_sqlite(path))
    await database.start()
    await database.stop()
    bench = Bench(path)
    await bench.start()
    yield bench
    await bench.backend.stop()


async def test_transactions_that_come_together_share_a_commit(bench: Bench) -> None:
    added = await asyncio.gather(*[bench.add() for _ in range(200)])
    assert bench.stored() == set(added)
    assert bench.backend.writer.transaction_count == 200
    assert bench.backend.writer.commit_count < 100


async def test_a_block_returns_only_after_its_commit(bench: Bench) -> None:
    bench.stalls["COMMIT"] = gate = asyncio.Event()
    calls: list[int] = []
    task = asyncio.create_task(bench.add(calls))
    await asyncio.sleep(0.05)
    assert not task.done()
    assert calls == []
    assert bench.stored() == set()
    gate.set()
    assert bench.stored() | {await task} == bench.stored()
    assert calls == [1]


async def test_a_commit_that_fails_fails_everyone_in_it_and_nobody_after(bench: Bench) -> None:
    bench.fails["COMMIT"] = sqlite3.OperationalError("disk I/O error")
    calls: list[int] = []
    results = await asyncio.gather(*[bench.add(calls) for _ in range(10)], return_exceptions=True)
    failed = [result for result in results if isinstance(result, Unavailable)]
    saved = {result for result in results if not isinstance(result, BaseException)}
    assert failed
    assert bench.stored() == saved
    assert len(calls) == len(saved)
    assert await bench.add() in bench.stored()


async def test_a_transaction_that_cannot_be_rolled_back_alone_takes_its_group_down(bench: Bench) -> None:
    bench.fails["ROLLBACK TO ticket"] = sqlite3.OperationalError("no such savepoint: ticket")

    async def fail() -> None:
        async with bench.uow.write() as tx:
            await tx.accounts.add(an_account())
            raise ValueError

    results = await asyncio.gather(bench.add(), fail(), bench.add(), return_exceptions=True)
    assert isinstance(results[0], Unavailable)
    assert isinstance(results[1], ValueError)
    assert bench.stored() == {results[2]}


NAME = text("UPDATE accounts SET name = :new_name WHERE account_id = :at_id")
REFUSED = text("UPDATE accounts SET account_id = NULL WHERE account_id = :at_id")


@pytest.mark.parametrize("refused", [REFUSED, text("UPDATE no_table SET name = :at_id")])
async def test_a_deferred_statement_that_fails_after_the_end_fails_its_own_transaction_only(
    bench: Bench, refused: TextClause
) -> None:
    """All three share one group: what the second deferred runs with the third's first statement or with COMMIT."""
    first = await bench.add()
    calls: list[str] = []

    async def rename(name: str, *then: TextClause) -> None:
        async with bench.uow.write() as tx:
            await tx.session.execute_many(NAME, [{"new_name": name, "at_id": first}], defer=True)
            for statement in then:
                await tx.session.execute_many(statement, [{"at_id": first}], defer=True)
            await tx.session.execute_many(NAME, [{"new_name": f"{name} again", "at_id": first}], defer=True)
            tx.after_commit(lambda: calls.append(name))

    results = await asyncio.gather(rename("one"), rename("two", refused), bench.add(), rename("three"), return_exceptions=True)
    failure = UnstorableValue if refused is REFUSED else Unavailable
    assert [type(result) for result in results] == [type(None), failure, str, type(None)]
    assert calls == ["one", "three"]
    assert bench.backend.writer.commit_count < 4
    assert bench.stored() == {first, results[2]}
    with closing(sqlite3.connect(bench.path)) as connection:
        assert connection.execute("SELECT name FROM accounts WHERE account_id = ?", (first,)).fetchone() == ("three again",)


async def test_a_group_is_lost_when_what_was_deferred_cannot_be_rolled_back_alone(bench: Bench) -> None:
    """ROLLBACK in the place of an error that makes SQLite end the whole transaction, such as a full disk."""
    ends_all = text("INSERT OR ROLLBACK INTO accounts (account_id) VALUES (:at_id)")

    async def lose() -> None:
        async with bench.uow.write() as tx:
            await tx.session.execute_many(ends_all, [{"at_id": "x"}], defer=True)

    results = await asyncio.gather(bench.add(), lose(), bench.add(), return_exceptions=True)
    assert isinstance(results[1], UnstorableValue)
    assert [isinstance(result, Unavailable) for result in (results[0], results[2])] == [True, True]
    assert bench.stored() == set()
    assert await bench.add() in bench.stored()


async def test_a_commit_that_stalls_is_answered_in_time(bench: Bench) -> None:
    bench.stalls["COMMIT"] = gate = asyncio.Event()
    with pytest.MonkeyPatch.context() as patch:
        bench.shorten(patch, "_commit_timeout_s")
        with pytest.raises(Unavailable, match="may or may not"):
            await asyncio.wait_for(bench.add(), TIMEOUT_S)
        bench.shorten(patch, "_acquire_timeout_s")
        with pytest.raises(Unavailable, match="busy"):
            await bench.add()
    gate.set()
    del bench.stalls["COMMIT"]
    assert await bench.add() in bench.stored()


async def test_a_transaction_that_keeps_its_turn_too_long_is_rolled_back(bench: Bench) -> None:
    account = an_account()

    async def dawdle() -> None:
        async with bench.uow.write() as tx:
            await tx.accounts.add(account)
            await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patch:
        bench.shorten(patch, "_transaction_timeout_s")
        with pytest.raises(Unavailable, match="Nothing was saved"):
            await dawdle()
    added = await bench.add()
    assert bench.stored() == {added}


async def test_another_processs_lock_is_waited_for_and_then_reported(bench: Bench) -> None:
    await bench.backend.writer.connection.fetch("PRAGMA busy_timeout=200")
    other = sqlite3.connect(bench.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        await bench.add()
    other.execute("COMMIT")
    other.close()
    assert await bench.add() in bench.stored()


async def test_stopping_finishes_what_waits_and_takes_nothing_more(bench: Bench) -> None:
    tasks = [asyncio.create_task(bench.add()) for _ in range(30)]
    await asyncio.sleep(0)
    writer = bench.backend.writer
    await writer.stop()
    added = await asyncio.gather(*tasks)
    assert bench.stored() == set(added)
    assert not writer.is_running
    with pytest.raises(Unavailable, match="stopping"):
        await bench.add()
    with pytest.raises(Unavailable):
        await bench.backend.check()


async def test_no_free_reader_in_time_is_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.shorten(monkeypatch, "_acquire_timeout_s")
    async with AsyncExitStack() as others:
        for _ in range(6):
            await others.enter_async_context(bench.uow.read())
        with pytest.raises(Unavailable, match="reads"):
            await others.enter_async_context(bench.uow.read())
    async with bench.uow.read() as tx:
        assert not await tx.accounts.has_any()


async def run_in_turn(bench: Bench, *names: str) -> list[str]:
    """The order in which transactions run that wait behind the commit of the first one. Those named "long" are background ones."""
    order: list[str] = []

    async def run(name: str) -> None:
        async with bench.uow.write(background="long" in name) as tx:
            await tx.accounts.add(an_account())
            order.append(name)

    bench.stalls["COMMIT"] = gate = asyncio.Event()
    first, *others = names
    tasks = [asyncio.create_task(run(first))]
    await asyncio.wait_for(bench.stalled.wait(), TIMEOUT_S)
    for name in others:
        tasks.append(asyncio.create_task(run(name)))
        await asyncio.sleep(0)
    assert order == [first]
    gate.set()
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*tasks)
    return order


async def test_others_go_before_the_second_background_transaction(bench: Bench) -> None:
    assert await run_in_turn(bench, "long", "long 2", "short", "short 2") == ["long", "short", "short 2", "long 2"]


async def test_a_background_transaction_waits_for_one_group_only(bench: Bench) -> None:
    assert await run_in_turn(bench, "short", "short 2", "long") == ["short", "long", "short 2"]


async def test_accounts_take_turns_however_much_one_of_them_asks_for(bench: Bench) -> None:
    order: list[str] = []

    async def run(account: str, name: str) -> None:
        async with bench.backend.write(account):
            order.append(name)

    bench.stalls["COMMIT"] = gate = asyncio.Event()
    tasks = [asyncio.create_task(bench.add())]
    await asyncio.wait_for(bench.stalled.wait(), TIMEOUT_S)
    asked = [("acc_loud", f"loud {number}") for number in range(4)]
    for account, name in [*asked, ("acc_quiet", "quiet"), ("", "the service"), ("acc_quiet", "quiet 2")]:
        tasks.append(asyncio.create_task(run(account, name)))
        await asyncio.sleep(0)
    gate.set()
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*tasks)
    assert order == ["loud 0", "quiet", "the service", "loud 1", "quiet 2", "loud 2", "loud 3"]


async def test_no_commit_waits_for_a_background_transaction_that_came_later(bench: Bench) -> None:
    is_added = asyncio.Event()

    async def run_long() -> None:
        async with bench.uow.write(background=True):
            await is_added.wait()

    async with bench.uow.write() as tx:
        await tx.accounts.add(an_account())
        task = asyncio.create_task(run_long())
        await asyncio.sleep(0)
    is_added.set()
    await task


async def test_an_idle_reader_does_not_keep_the_log_from_being_reused(bench: Bench) -> None:
    async with bench.uow.read() as tx:
        await tx.accounts.has_any()
    await bench.add()
    connection = sqlite3.connect(bench.path, timeout=0)  # a wait here would hold up the event loop that ends the snapshot

    async def checkpoint() -> int:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return int(busy)

    try:
        await until(checkpoint, lambda busy: busy == 0)
    finally:
        connection.close()


async def test_the_log_moves_into_the_file_beside_the_writer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CHECKPOINT_BYTES", 8 * 4_096)

    async def add_and_count() -> int:
        await bench.add()
        with closing(sqlite3.connect(f"file:{bench.path}?immutable=1", uri=True)) as without_log:
            return int(without_log.execute("SELECT COUNT(*) FROM accounts").fetchone()[0])

    await until(add_and_count, bool)
    assert (await bench.backend.writer.connection.fetch("PRAGMA wal_autocheckpoint"))[0][0] == connections.MAX_LOG_PAGES


async def test_a_commit_moves_the_rest_of_a_long_log(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WalCheckpointer, "on_commit", lambda _: None)
    await bench.backend.writer.connection.fetch("PRAGMA wal_autocheckpoint=20")
    for _ in range(60):
        await bench.add()
    assert Path(f"{bench.path}-wal").stat().st_size < 60 * 4_096


async def test_a_stop_does_not_wait_for_a_checkpoint_that_hangs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(_: Path) -> None:
        hangs.set()
        goes_on.wait(TIMEOUT_S)

    monkeypatch.setattr(connections, "CHECKPOINT_BYTES", 0)
    monkeypatch.setattr(connections, "_checkpoint", hang)
    await bench.add()
    assert await asyncio.to_thread(hangs.wait, TIMEOUT_S)
    bench.shorten(monkeypatch, "_acquire_timeout_s")
    try:
        async with asyncio.timeout(TIMEOUT_S / 2):
            await bench.backend.writer.stop()
    finally:
        goes_on.set()


async def test_opening_waits_for_who_writes_a_file_without_a_write_ahead_log_but_not_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.executescript("CREATE TABLE kept (id INTEGER); BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            await SqliteConnection.open(path, reader=False, busy_timeout_ms=100)
        opening = asyncio.create_task(SqliteConnection.open(path, reader=False, busy_timeout_ms=int(TIMEOUT_S * 1000)))
        await asyncio.sleep(0.2)
        assert not opening.done()
        other.execute("COMMIT")
        await (await opening).close()
