"""Who writes a line never waits for who reads it; what does not fit is dropped and counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.runtime import logging, output
from app.runtime.output import QueuedOutput
from support.waiting import TIMEOUT_S


@contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """The ends to read and to write of a pipe that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"." * 4_096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


def read_until(reader: int, wanted: bytes) -> bytes:
    found = b""
    while wanted not in found:
        found += os.read(reader, 65_536)
    return found


def test_a_line_is_written_in_order() -> None:
    reader, writer = os.pipe()
    stream = QueuedOutput(writer)
    print("one", "two", file=stream)
    stream.write("three\nfo")
    stream.write("ur\n")
    assert stream.drain(TIMEOUT_S)
    assert os.read(reader, 100) == b"one two\nthree\nfour\n"
    assert stream.dropped == 0


def test_a_full_pipe_holds_up_nobody_and_loses_a_counted_number_of_lines() -> None:
    with full_pipe() as (reader, writer):
        stream = QueuedOutput(writer, max_bytes=1_000)
        for _ in range(200):
            print("x" * 99, file=stream)
        assert stream.dropped == 190
        assert not stream.drain(0)
        read_until(reader, b"x" * 99 + b"\n")


def test_a_reader_that_comes_back_is_told_how_much_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    with full_pipe() as (reader, writer):
        stream = QueuedOutput(writer, max_bytes=1_000)
        monkeypatch.setattr("sys.stderr", stream)
        logging.configure_logging("json", "INFO")
        for _ in range(200):
            print("x" * 99, file=stream)
        assert b'"dropped": 190' in read_until(reader, b"nobody read them in time" if False else b'"dropped": 190')


def test_a_reader_that_is_gone_costs_lines_and_nothing_else() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = QueuedOutput(writer)
    print("nobody hears this", file=stream)
    assert stream.drain(TIMEOUT_S)
    assert stream.dropped == 1
    os.close(writer)


def test_a_process_without_queued_output_has_dropped_nothing() -> None:
    assert output.dropped_lines() == 0
