"""A service whose output nobody reads: its pipe takes nothing more."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

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
