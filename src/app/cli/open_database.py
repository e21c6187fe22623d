"""How the commands open the database, also while the service runs: SQLite serializes the two processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.feed_hub import InProcessFeedHub
from adapters.randomness import RandomIdAndSecretGenerator
from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.config.settings import Settings
from app.runtime.start import require_database
from app.wiring.adapters import prepare_data_dir
from domain.events.dispatcher import DomainEventDispatcher


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[SqlUnitOfWork]:
    """Raises StartupError, and what the database raises."""
    prepare_data_dir(settings.data_dir)
    database = SqlDatabase(settings.effective_database_url, pool_size=1)
    uow = database.unit_of_work(DomainEventDispatcher(ids=RandomIdAndSecretGenerator(), observers=[], feed=InProcessFeedHub()))
    try:
        require_database(settings, database.file)
        await database.start()
        yield uow
    finally:
        await database.stop()
