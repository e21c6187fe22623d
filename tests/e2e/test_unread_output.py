"""Nobody reads what the service prints: the pipe of its output is full, and it serves people and devices all the same."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.device import create_device
from support.fork_server import ForkedProcess, fork_server
from support.service import Service, environment, program_command


class FullPipe:
    """A pipe that takes nothing more. `write_end`: what the service gets as its output."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.write_end, False)
        try:
            while os.write(self.write_end, b"." * 4_096):
                pass
        except BlockingIOError:
            os.set_blocking(self.write_end, True)

    def close(self) -> None:
        os.close(self.read_end)
        os.close(self.write_end)


class UnreadService(Service):
    def __init__(self, folder: Path, pipe: FullPipe, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self.pipe = pipe

    def launch(self, *arguments: str) -> subprocess.Popen[bytes] | ForkedProcess:
        self.folder.mkdir(parents=True, exist_ok=True)
        if home := fork_server():
            return home.start([*arguments], folder=self.folder, env=environment(**self.settings), out=self.pipe.write_end)
        return subprocess.Popen(
            [*program_command(), *arguments],
            cwd=self.folder,
            env=environment(**self.settings),
            stdin=subprocess.DEVNULL,
            stdout=self.pipe.write_end,
            stderr=subprocess.STDOUT,
        )


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
