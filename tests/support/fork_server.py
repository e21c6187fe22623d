"""Starts the program without its imports: a process that has already imported it forks one child for each start.

Imports are two thirds of a start's processor time, and the tests start the program hundreds of times. A forked child runs the
same `main` with its own arguments, environment, folder and output, and the same signals end it. Only Linux has
`PR_SET_CHILD_SUBREAPER`; elsewhere every start is a full one.

The fork server forks twice, and the intermediate process ends at once. The kernel then makes the nearest subreaper the parent of
the program: the test process, which waits for it as for any child and sees its exit status.
"""

from __future__ import annotations

import ctypes
import gc
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

from support.waiting import TIMEOUT_S

SET_CHILD_SUBREAPER = 36
MAX_REQUEST_BYTES = 256 * 1024
PRELOADED_MODULES = (
    "app.cli.commands",
    "app.cli.serve",
    "app.wiring.lifecycle",
    "adapters.delivery.courier",
    "adapters.engine.native",
    "adapters.mqtt.embedded",
    "asyncpg",
)


class ForkedProcess:
    """A program that the fork server started, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._pidfd = os.pidfd_open(pid)
        self._lock = threading.Lock()  # the kernel reports an exit once, and tests wait in several threads

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
    """The client in the test process: one per process; it starts one program after another."""

    def __init__(self) -> None:
        _become_subreaper()
        self._requests, server_side = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.settimeout(TIMEOUT_S)
        self._lock = threading.Lock()
        with server_side:
            tests = Path(__file__).resolve().parents[1]
            path = os.pathsep.join([str(tests), str(tests.parent / "src")])
            clean = {name: value for name, value in os.environ.items() if not name.startswith("LATCHBOARD_")}
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"from support.fork_server import run_fork_server; run_fork_server({server_side.fileno()})",
                ],
                env=clean | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                pass_fds=[server_side.fileno()],
            )

    def start(
        self, arguments: list[str], *, folder: Path, env: dict[str, str], out: int, errors: int | None = None
    ) -> ForkedProcess:
        """Run `latchboard *arguments` in `folder` with exactly this environment. Output goes to the descriptor `out`, that of
        standard error to `errors` if it is given."""
        request = json.dumps({"arguments": arguments, "folder": str(folder), "env": env}).encode()
        with self._lock:
            socket.send_fds(self._requests, [request], [out, out if errors is None else errors])
            answer = self._requests.recv(64)
        assert answer, f"the fork server has ended with {self._process.poll()}"
        return ForkedProcess(int(answer))


@cache
def fork_server() -> ForkServer | None:
    """The fork server of this process, or None where the system cannot have one."""
    return ForkServer() if sys.platform == "linux" and hasattr(os, "pidfd_open") else None


def run_fork_server(socket_descriptor: int) -> None:
    """The server process: fork one child per request until the test process has gone. Only the children return from the loop."""
    for name in PRELOADED_MODULES:
        importlib.import_module(name)
    gc.freeze()  # else each program looks at all that was imported when it ends, and copies it
    requests = socket.socket(fileno=socket_descriptor)
    while True:
        request, outputs, *_ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 2)
        if not request:
            os._exit(0)
        pid_reader, pid_writer = os.pipe()
        if not (intermediate := os.fork()):
            if not (child := os.fork()):
                break
            os.write(pid_writer, str(child).encode())
            os._exit(0)
        os.waitpid(intermediate, 0)  # after this the test process is the child's parent
        requests.send(os.read(pid_reader, 64))
        for descriptor in (pid_reader, pid_writer, *outputs):
            os.close(descriptor)
    for descriptor in (pid_reader, pid_writer, requests.detach()):
        os.close(descriptor)
    _run_program(json.loads(request), *outputs)


def _run_program(request: dict[str, Any], out: int, errors: int) -> None:
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["latchboard", *request["arguments"]]
    os.dup2(out, 1)
    os.dup2(errors, 2)
    os.close(out)
    os.close(errors)
    from app.cli.main import main

    main()


def _become_subreaper() -> None:
    failed = ctypes.CDLL(None, use_errno=True).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    assert not failed, os.strerror(ctypes.get_errno())
