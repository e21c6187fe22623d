"""Connections to PostgreSQL that are known to live when they are given out.

A connection that the server has ended is seen at once, without asking. One whose server has vanished says nothing, so one that
has rested is asked before it is used. Those used a moment ago are not: the question takes three ways to the server and back,
which is more than most transactions take, and what fails in spite of it fails with a word that says to try again.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

PING_AFTER_IDLE_S = 5.0
PLANNER_SETTINGS = {"enable_seqscan": "off", "jit": "off"}
"""Each of our statements finds its rows by an index. The server keeps the plan of a statement until it gathers statistics again,
and while a table is empty reading all of it looks best: a minute later, with 100,000 rows, such a plan takes a second."""
_IDLE_SINCE = "rests_since"


def create_pooled_engine(url: Any, *, pool_size: int, patience_s: float, hold_s: float) -> AsyncEngine:
    """An engine whose pool waits at most `patience_s` for a connection, and whose statements take at most `hold_s`."""
    engine = create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=patience_s,
        connect_args={"timeout": patience_s, "command_timeout": hold_s, "server_settings": PLANNER_SETTINGS},
    )
    event.listen(engine.sync_engine, "checkin", _mark_idle)
    event.listen(engine.sync_engine, "checkout", _LivenessCheck(engine))
    return engine


def _mark_idle(_connection: Any, record: Any) -> None:
    record.info[_IDLE_SINCE] = monotonic()


class _LivenessCheck:
    def __init__(self, engine: AsyncEngine) -> None:
        self._dialect = engine.dialect

    def __call__(self, connection: Any, record: Any, _proxy: Any) -> None:
        """Raises DisconnectionError: the pool then gives another one."""
        if connection.driver_connection.is_closed():
            raise DisconnectionError("the server has ended this connection")
        since = record.info.get(_IDLE_SINCE)
        if since is None or monotonic() - since < PING_AFTER_IDLE_S:
            return
        try:
            self._dialect.do_ping(connection)
        except Exception as error:
            raise DisconnectionError("nobody answers on this connection") from error
