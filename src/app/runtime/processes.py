"""The parent of worker processes: forks them, replaces one that ends, and passes a stop on, with a bound.

The parent serves nothing and opens nothing, so it has no thread but those that write its output and can fork at any time;
what it has imported, the workers share. The first worker alone prepares the installation (schema, keys, first account); the
others start when it is ready. A worker that ends later is replaced, after a pause that grows while it keeps ending. If the
parent ends, however it ends, its workers stop too.

A worker that hangs ends too: the kernel would go on giving it connections, and it keeps the devices' ports. Each worker writes to
its pipe every second once it is ready; one from which nothing comes for `SILENCE_TIMEOUT_S` is killed and replaced. That is
before its lease on the devices ends, so the next leader finds the ports free.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import signal
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import NoReturn

import structlog

from app.runtime.output import drain_outputs
from domain.kernel.backoff import Backoff

RESTART_BACKOFF = Backoff((0.1, 0.5, 2.0, 5.0, 15.0))
STABLE_AFTER_S = 30.0
"""A worker that has run for so long starts without a pause when it ends."""
STOP_TIMEOUT_S = 8.0
"""A worker stops within five seconds. What is left then is killed."""
BEAT_INTERVAL_S = 1.0
SILENCE_TIMEOUT_S = 4.5
"""Shorter than the lease of a leader, after which another worker takes the devices over (`leadership.LEASE_S`)."""
OVERSLEPT_S = 0.5
"""A parent that wakes so late was stopped itself, or the machine is out of breath: the silence of each begins anew."""
DUPLICATE_SIGNAL_S = 0.5
"""A shell and `timeout` signal the process and its group: a second signal this soon is the first one again."""
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_STOP_SIGNALS, signal.SIGCHLD)

log = structlog.get_logger("workers")


@dataclass(frozen=True, slots=True)
class WorkerProcessContext:
    """What a worker process knows of itself. `number`: from 1; `restarts`: how often it was replaced."""

    number: int
    restarts: int
    folder: Path
    """For files of all workers of this parent; nobody else may enter it."""
    parent_pipe: int = field(repr=False)
    """A descriptor that becomes readable when the parent has ended."""
    report_pipe: int = field(repr=False)

    @property
    def is_first_start(self) -> bool:
        """Whether this process prepares the installation and prints the banner."""
        return self.number == 1 and self.restarts == 0

    def report_ready(self) -> None:
        """Call it once, on the event loop, when the worker serves requests. The loop then says every second that it runs."""
        with contextlib.suppress(OSError):  # the parent has ended, and the other pipe tells; or it is stopped, and the pipe full
            os.write(self.report_pipe, b".")
        asyncio.get_running_loop().call_later(BEAT_INTERVAL_S, self.report_ready)


@dataclass(slots=True)
class _WorkerProcessSlot:
    """One worker number and the process that has it now. `pid` is 0 between two processes."""

    number: int
    pid: int = 0
    report_pipe: int = -1
    started_at: float = 0.0
    silent_since: float | None = None
    """When it was last heard; None before it is ready."""
    start_due_at: float | None = None
    starts: int = 0
    failures: int = 0
    """Ends in a row without a stable run in between."""


class WorkerProcessSupervisor:
    def __init__(self, count: int, folder: Path, run_worker: Callable[[WorkerProcessContext], int]) -> None:
        """`run_worker` runs in the forked process and returns its exit code."""
        self._folder = folder
        self._run_worker = run_worker
        self._slots = [_WorkerProcessSlot(number) for number in range(1, count + 1)]
        self._is_prepared = False
        """Whether the first worker has been ready."""
        self._parent_pipe = os.pipe()
        self._wakeups = socket.socketpair()

    def run(self) -> int:
        """Run until a signal, or until the first worker ends before it was ever ready. Returns the exit code."""
        with self._handled_signals():
            gc.collect()
            gc.freeze()  # a collection would write to pages that the workers share
            self._slots[0].start_due_at = 0.0
            while True:
                self._start_due()
                if self._wait(self._next_look_s()):
                    return self._stop()
                self._kill_silent()
                code = self._reap()
                if code is not None:
                    return code

    @contextlib.contextmanager
    def _handled_signals(self) -> Iterator[None]:
        for end in self._wakeups:
            end.setblocking(False)
        previous = signal.set_wakeup_fd(self._wakeups[1].fileno(), warn_on_full_buffer=False)
        handlers = [(number, signal.signal(number, lambda *_: None)) for number in _SIGNALS]
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous)
            for number, handler in handlers:
                signal.signal(number, handler)

    def _wait(self, timeout_s: float | None) -> bool:
        """Wait for a signal, a worker's report, or the time. True for a signal to stop."""
        pipes = [slot.report_pipe for slot in self._slots if slot.report_pipe >= 0]
        wakeups, began = self._wakeups[0], monotonic()
        readable, _, _ = select.select([wakeups.fileno(), *pipes], [], [], timeout_s)
        overslept_s = monotonic() - began - (timeout_s or 0.0)
        for slot in self._slots:
            if slot.report_pipe in readable:
                self._read_report(slot)
            elif slot.silent_since is not None and overslept_s > OVERSLEPT_S:
                slot.silent_since = monotonic()
        return wakeups.fileno() in readable and any(number in _STOP_SIGNALS for number in wakeups.recv(4_096))

    def _read_report(self, slot: _WorkerProcessSlot) -> None:
        is_first = slot.silent_since is None
        if not os.read(slot.report_pipe, 4_096):  # it has ended; `_reap` finds out how
            self._forget_reports(slot)
            return
        slot.silent_since = monotonic()
        if is_first:
            log.info("a worker process is ready", worker=slot.number, pid=slot.pid)
        if not self._is_prepared:
            self._is_prepared = True
            for other in self._slots[1:]:
                other.start_due_at = 0.0

    def _forget_reports(self, slot: _WorkerProcessSlot) -> None:
        if slot.report_pipe >= 0:
            os.close(slot.report_pipe)
        slot.report_pipe, slot.silent_since = -1, None

    def _kill_silent(self) -> None:
        """`_reap` replaces it."""
        for slot in self._slots:
            if slot.pid and slot.silent_since is not None and monotonic() - slot.silent_since >= SILENCE_TIMEOUT_S:
                log.error(
                    f"a worker process has not answered for {SILENCE_TIMEOUT_S:g} seconds and is killed; what it had accepted is "
                    "lost, and clients connect again",
                    worker=slot.number,
                    pid=slot.pid,
                )
                self._forget_reports(slot)
                os.kill(slot.pid, signal.SIGKILL)

    def _start_due(self) -> None:
        now = monotonic()
        for slot in self._slots:
            if slot.start_due_at is not None and slot.start_due_at <= now:
                self._start(slot)

    def _next_look_s(self) -> float | None:
        due = [slot.start_due_at for slot in self._slots if slot.start_due_at is not None]
        if any(slot.silent_since is not None for slot in self._slots):
            due.append(monotonic() + BEAT_INTERVAL_S)
        return max(0.0, min(due) - monotonic()) if due else None

    def _start(self, slot: _WorkerProcessSlot) -> None:
        report_read, report_write = os.pipe()
        os.set_blocking(report_write, False)
        identity = WorkerProcessContext(slot.number, slot.starts, self._folder, self._parent_pipe[0], report_write)
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until the child has handlers of its own
        try:
            pid = os.fork()
            if pid == 0:
                self._become_worker(identity, [report_read])
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(report_write)
        slot.pid, slot.report_pipe, slot.started_at, slot.start_due_at = pid, report_read, monotonic(), None
        slot.starts += 1

    def _become_worker(self, identity: WorkerProcessContext, unused_pipes: Sequence[int]) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            for end in self._wakeups:
                end.close()
            others = [slot.report_pipe for slot in self._slots if slot.report_pipe >= 0]
            for descriptor in (self._parent_pipe[1], *unused_pipes, *others):
                os.close(descriptor)
            code = self._run_worker(identity)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                drain_outputs()
            os._exit(code)  # nothing of the parent's program runs after this

    def _reap(self) -> int | None:
        """Note workers that have ended. The exit code for the program, if it cannot go on."""
        for slot, code in self._ended():
            if not self._is_prepared:
                return code if code > 0 else 1
            slot.failures = 1 if monotonic() - slot.started_at > STABLE_AFTER_S else slot.failures + 1
            pause_s = RESTART_BACKOFF.pause_s(slot.failures)
            slot.start_due_at = monotonic() + pause_s
            log.error("a worker process has ended and is replaced", worker=slot.number, exit_code=code, pause_s=pause_s)
        return None

    def _ended(self) -> Iterator[tuple[_WorkerProcessSlot, int]]:
        for slot in self._slots:
            if slot.pid and (ended := os.waitpid(slot.pid, os.WNOHANG))[0]:
                slot.pid = 0
                self._forget_reports(slot)
                yield slot, os.waitstatus_to_exitcode(ended[1])

    def _stop(self) -> int:
        """Pass the stop on and wait. Returns 1 if a worker had to be killed, or a later signal asks for the end at once."""
        began = monotonic()
        self._signal_all(signal.SIGTERM)
        while any(slot.pid for slot in self._slots):
            left_s = began + STOP_TIMEOUT_S - monotonic()
            is_repeated = self._wait(max(0.0, left_s)) and monotonic() - began > DUPLICATE_SIGNAL_S
            for _ in self._ended():
                pass
            if is_repeated or left_s <= 0:
                return self._kill_all()
        return 0

    def _kill_all(self) -> int:
        left = [slot.number for slot in self._slots if slot.pid]
        if left:
            log.error("worker processes did not stop in time and were killed", workers=left)
        self._signal_all(signal.SIGKILL)
        for slot in self._slots:
            if slot.pid:
                os.waitpid(slot.pid, 0)
        return 1

    def _signal_all(self, number: signal.Signals) -> None:
        for slot in self._slots:
            if slot.pid:
                os.kill(slot.pid, number)
