"""A connection pool that gives out live connections only.

asyncpg knows without asking when the server has closed a connection. A server that has vanished sends nothing, so a connection
that was idle is pinged before use. One that was used a moment ago is not: a ping takes three round trips, more than most
transactions, and a failure there raises an error that asks the client to try again. When somebody else has found that nothing
comes back from the server, all open connections are aborted, so that nobody waits for an answer until its statement's limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

PING_AFTER_IDLE_S = 5.0
IDLE_TRANSACTION_MS = 6_000
"""The server ends a transaction whose client sends nothing for so long: one behind a network that swallows bytes would keep its
locks for ever, and those who take its work over need them."""
PLANNER_SETTINGS = {"enable_seqscan": "off", "jit": "off"}
"""Every statement finds its rows by an index (decision 0006). The server keeps a statement's plan until it gathers statistics
again. For an empty table it plans a sequential scan; a minute later, with 100,000 rows, that plan takes a second."""
KEEPALIVE_SETTINGS = {"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3"}
"""The server notices after eleven seconds that a machine has vanished."""
_IDLE_SINCE = "rests_since"


def create_pooled_engine(
    url: Any,
    *,
    pool_size: int,
    acquire_timeout_s: float,
    transaction_timeout_s: float,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncEngine:
    """`acquire_timeout_s` limits the wait for a connection, `transaction_timeout_s` each statement. `settings` are
    PostgreSQL's, for each session."""
    engine = create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=acquire_timeout_s,
        connect_args={
            "timeout": acquire_timeout_s,
            "command_timeout": transaction_timeout_s,
            "statement_cache_size": 512,
            "max_cached_statement_lifetime": 0,
            "server_settings": {
                **PLANNER_SETTINGS,
                **KEEPALIVE_SETTINGS,
                "idle_in_transaction_session_timeout": str(IDLE_TRANSACTION_MS),
                **settings,
            },
        },
    )
    event.listen(engine.sync_engine, "checkin", _mark_idle)
    event.listen(engine.sync_engine, "checkout", _PooledConnectionCheck(engine))
    return engine


class OpenDatabaseConnectionTracker:
    def __init__(self, engine: AsyncEngine) -> None:
        self._drivers: WeakSet[Any] = WeakSet()
        event.listen(engine.sync_engine, "connect", lambda connection, _record: self._drivers.add(connection.driver_connection))

    def abort(self) -> int:
        """As if the server had reset them: statements that wait for an answer fail at once. Returns how many were open."""
        alive = [driver for driver in self._drivers if not driver.is_closed()]
        for driver in alive:
            driver._transport.abort()  # asyncpg's own terminate() leaves a statement that resumes just then without a protocol
        return len(alive)


def _mark_idle(_connection: Any, record: Any) -> None:
    record.info[_IDLE_SINCE] = monotonic()


class _PooledConnectionCheck:
    def __init__(self, engine: AsyncEngine) -> None:
        self._dialect = engine.dialect

    def __call__(self, connection: Any, record: Any, _proxy: Any) -> None:
        """Raises DisconnectionError; the pool then gives another connection."""
        if connection.driver_connection.is_closed():
            raise DisconnectionError("the server has closed this connection")
        since = record.info.get(_IDLE_SINCE)
        if since is None or monotonic() - since < PING_AFTER_IDLE_S:
            return
        try:
            self._dialect.do_ping(connection)
        except Exception as error:
            raise DisconnectionError("the server does not answer on this connection") from error
