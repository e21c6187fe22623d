"""Starts of the program without its imports: a process that has imported it already forks one child for each.

Two thirds of a start's processor time are imports, and the tests start the program hundreds of times. Such a child runs the same
`main` with its own arguments, environment, folder and output, and dies by the same signals; only the interpreter's start and the
imports are spared. Where the system cannot do it (`PR_SET_CHILD_SUBREAPER` is Linux), every start is a whole one.

The nursery forks twice and the one between ends at once, so that the program is handed to the nearest ancestor that takes orphans
in: the test's own process, which waits for it as for any child and sees how it ended.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

SET_CHILD_SUBREAPER = 36
START_TIMEOUT_S = 60.0
MAX_REQUEST_BYTES = 256 * 1024
PRELOADED_MODULES = (
    "app.cli.main",
    "app.runtime.serve",
    "app.runtime.lifecycle",
    "adapters.delivery.native_courier",
    "adapters.engine.native_engine",
    "adapters.mqtt.embedded_link",
    "alembic.command",
    "asyncpg",
)


class ForkedProcess:
    """A child of the nursery, with what `subprocess.Popen` has for a program's end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._pidfd = os.pidfd_open(pid)
        self._lock = threading.Lock()  # the system tells an end once, and tests wait in threads

    def __del__(self) -> None:
        os.close(self._pidfd)

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if ended else None
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not select.select([self._pidfd], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("latchboard", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The side of the tests. One for a process; births one after another."""

    def __init__(self) -> None:
        _adopt_orphans()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.settimeout(START_TIMEOUT_S)
        self._lock = threading.Lock()
        with theirs:
            here = Path(__file__).resolve().parents[1]
            path = os.pathsep.join([str(here), str(here.parent / "src")])
            clean = {name: value for name, value in os.environ.items() if not name.startswith("LATCHBOARD_")}
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from support.fork_server import run_fork_server; run_fork_server({theirs.fileno()})"],
                env=clean | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(self, arguments: list[str], *, folder: Path, env: dict[str, str], out: int) -> ForkedProcess:
        """`latchboard *arguments` in `folder`, with exactly this environment; what it says goes to the descriptor `out`."""
        order = json.dumps({"arguments": arguments, "folder": str(folder), "env": env}).encode()
        with self._lock:
            socket.send_fds(self._requests, [order], [out])
            answer = self._requests.recv(64)
        assert answer, f"the nursery has ended with {self._process.poll()}"
        return ForkedProcess(int(answer))


@cache
def fork_server() -> ForkServer | None:
    """This process's own, or None where there cannot be one."""
    return ForkServer() if sys.platform == "linux" and hasattr(os, "pidfd_open") else None


def run_fork_server(descriptor: int) -> None:
    """The nursery itself: for each order a child, until the tests' process has gone. Returns in the children only."""
    for name in PRELOADED_MODULES:
        importlib.import_module(name)
    orders = socket.socket(fileno=descriptor)
    while True:
        order, out, *_ = socket.recv_fds(orders, MAX_REQUEST_BYTES, 1)
        if not order:
            os._exit(0)
        told, tell = os.pipe()
        if not (between := os.fork()):
            if not (born := os.fork()):
                break
            os.write(tell, str(born).encode())
            os._exit(0)
        os.waitpid(between, 0)  # only then is the child the tests' own
        orders.send(os.read(told, 64))
        for each in (told, tell, out[0]):
            os.close(each)
    for each in (told, tell, orders.detach()):
        os.close(each)
    _run_program(json.loads(order), out[0])


def _run_program(order: dict[str, Any], out: int) -> None:
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = ["latchboard", *order["arguments"]]
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    from app.cli.main import main

    main()


def _adopt_orphans() -> None:
    failed = ctypes.CDLL(None, use_errno=True).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    assert not failed, os.strerror(ctypes.get_errno())
