"""Standard output and standard error of the service: nobody who writes a line waits for who reads it.

A pipe that nobody reads is full after 64 KiB, and a write to it waits forever. So lines go to a bounded queue and one thread for
each stream writes them; what does not fit is dropped and counted, and the log says how many when it is read again. This holds for
the log, the banner, tracebacks, warnings, and whatever else a library prints.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

import structlog

MAX_QUEUED_BYTES = 1024 * 1024
MAX_WRITE_BYTES = select.PIPE_BUF
"""Processes that share a pipe write whole lines up to this size; longer ones may be mixed."""
DRAIN_TIMEOUT_S = 1.0
"""At its end the program waits this long for who reads its output."""

log = structlog.get_logger("log")


class QueuedOutput(io.TextIOBase):
    """A text stream that never blocks. `dropped`: lines that were not written, because the queue was full or nobody can read them
    any more."""

    def __init__(self, descriptor: int, *, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self.dropped = 0
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._queued_bytes = 0
        """Of the lines that wait and of those that are being written."""
        self._partial = ""
        self._unreported = 0
        self._thread: threading.Thread | None = None

    def after_fork(self) -> None:
        """Begin anew in a child process: it has no copy of the thread, and the parent writes what it has queued."""
        self.dropped = 0
        self._reset()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._changed:
            *whole, self._partial = (self._partial + text).split("\n")
            for line in whole:
                self._put(line + "\n")
        return len(text)

    def flush(self) -> None:
        """Queue what has no line end yet. It does not wait; `drain` does."""
        with self._changed:
            if self._partial:
                self._put(self._partial)
                self._partial = ""

    def drain(self, timeout_s: float = DRAIN_TIMEOUT_S) -> bool:
        """Wait until everything is written, but no longer than this. True if it is."""
        self.flush()
        deadline = monotonic() + timeout_s
        with self._changed:
            while self._queued_bytes and (left_s := deadline - monotonic()) > 0:
                self._changed.wait(left_s)
            return self._queued_bytes == 0

    def _put(self, text: str) -> None:
        line = text.encode("utf-8", "backslashreplace")
        if self._queued_bytes and self._queued_bytes + len(line) > self._max_bytes:
            self._count_dropped(1)
            return
        self._lines.append(line)
        self._queued_bytes += len(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_lines, name=f"output-{self._descriptor}", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _count_dropped(self, lines: int) -> None:
        self.dropped += lines
        self._unreported += lines

    def _write_lines(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    self._changed.wait()
                batch = self._take()
            size = sum(map(len, batch))
            written = write_all(self._descriptor, b"".join(batch))
            with self._changed:
                self._queued_bytes -= size
                if not written:
                    self._count_dropped(len(batch))
                dropped = self._unreported if written and not self._lines else 0
                self._unreported -= dropped
                self._changed.notify_all()
            if dropped:
                log.warning("lines of the log were dropped, because nobody read them in time", dropped=dropped)

    def _take(self) -> list[bytes]:
        batch = [self._lines.popleft()]
        size = len(batch[0])
        while self._lines and size + len(self._lines[0]) <= MAX_WRITE_BYTES:
            batch.append(self._lines.popleft())
            size += len(batch[-1])
        return batch


def write_all(descriptor: int, content: bytes) -> bool:
    """Write all of it, however long the reader takes. False if nobody can read it any more."""
    rest = memoryview(content)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another program has made the pipe that it shares non-blocking
            select.select([], [descriptor], [])
        except OSError:
            return False
    return True


_installed: list[QueuedOutput] = []
"""Of this process: standard output and standard error, while they are queued."""


def dropped_lines() -> int:
    """How many lines of standard output and standard error this process has dropped."""
    return sum(each.dropped for each in _installed)


def drain_outputs(timeout_s: float = DRAIN_TIMEOUT_S) -> bool:
    """Give who reads the output some time at the end of the process. True if all of it is written."""
    deadline = monotonic() + timeout_s
    drained = [each.drain(deadline - monotonic()) for each in _installed]
    return all(drained)


@contextmanager
def queued_outputs() -> Iterator[None]:
    """Let standard output and standard error never block. What the reader has not taken at the end is given up after a second."""
    before: tuple[TextIO, TextIO] = sys.stdout, sys.stderr
    for stream in before:
        stream.flush()
    _installed[:] = [QueuedOutput(stream.fileno()) for stream in before]
    sys.stdout, sys.stderr = _installed
    try:
        yield
    finally:
        if drain_outputs():  # otherwise a line that is printed later would wait forever
            sys.stdout, sys.stderr = before


def _after_fork() -> None:
    for each in _installed:
        each.after_fork()


os.register_at_fork(after_in_child=_after_fork)
