"""Nobody reads what the service prints: the pipe of its output is full, and it serves people and devices all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.device import create_device
from support.unread_output import FullPipe, UnreadService


@pytest.fixture
def pipe() -> Iterator[FullPipe]:
    pipe = FullPipe()
    yield pipe
    pipe.close()


@pytest.fixture
def unread(tmp_path: Path, pipe: FullPipe) -> Iterator[UnreadService]:
    with UnreadService(tmp_path, pipe, LATCHBOARD_LOG_LEVEL="DEBUG", LATCHBOARD_INGEST_LIMIT=0) as service:
        yield service


async def test_a_full_log_pipe_stops_nobody(unread: UnreadService) -> None:
    async with unread.api() as owner:
        pump = await create_device(owner)
        for _ in range(3):
            async with pump.online(unread) as line:
                await line.report(t=21.5)  # returns after the PUBACK
                command = await owner.post(f"{pump.path}/command", {"cmd": "ON", "waitSeconds": 10})
                assert command["status"] == "DONE"
    unread.stop()
