"""Keeps the connection on which PostgreSQL notifies this instance, and opens it again when it is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from app.runtime.worker_supervisor import FatalWorkerError
from domain.kernel.backoff import RETRY_BACKOFF
from domain.kernel.errors import Unavailable

if TYPE_CHECKING:
    from adapters.storage.sql.postgres.leadership import PostgresCoordinationConnection

log = structlog.get_logger("postgres_listener")


class PostgresListenerWorker:
    name = "postgres_listener"

    def __init__(self, listener: PostgresCoordinationConnection) -> None:
        self._listener = listener

    async def run(self) -> None:
        attempt = 0
        while True:
            opened = self._listener.opened
            try:
                await self._listener.run_until_lost()
            except Unavailable as error:
                if error.code == "DEVICES_HELD_ELSEWHERE":
                    raise FatalWorkerError(error.message) from None
                attempt = attempt + 1 if self._listener.opened == opened else 1
                log.warning("the connection for notifications is lost; it is opened again", error=error.message, attempt=attempt)
                await asyncio.sleep(RETRY_BACKOFF.pause_s(attempt))
