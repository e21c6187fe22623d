"""One suite, every storage: the same sentences must hold for each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.storage import STORAGES, StoredAccount, open_storage, populate


@pytest.fixture(params=STORAGES)
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """An empty storage's unit of work."""
    async with open_storage(request.param, tmp_path) as uow:
        yield uow


@pytest.fixture
async def world(storage: Any) -> StoredAccount:
    return await populate(storage)
