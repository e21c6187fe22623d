"""The stand-in for a ClickHouse server (`clickhouse_server.py`) as a process on the loopback.

`LATCHBOARD_CHDB` names the interpreter of an environment that has `chdb` (PyPI, hundreds of megabytes, so it is no dependency)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from adapters.clickhouse.reading_store import ClickHouseConnectionConfig, ClickHouseReadingStore
from domain.telemetry.ports import ArchivedMessageReadings, DeviceKey, MessageKey
from support import clickhouse_server
from support.ports import free_ports
from support.waiting import TIMEOUT_S

PYTHON = os.environ.get("LATCHBOARD_CHDB")
NEEDS_CHDB = pytest.mark.skipif(PYTHON is None, reason="set LATCHBOARD_CHDB to a Python that has `chdb` (PyPI)")


class ClickHouseServer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        [self.port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        server = clickhouse_server
        return f"http://{server.USER}:{server.PASSWORD}@127.0.0.1:{self.port}/{server.DATABASE}"

    def start(self) -> None:
        assert PYTHON is not None
        program = [PYTHON, "-P", clickhouse_server.__file__, str(self._folder / "chdb"), str(self.port)]
        with (self._folder / "chdb.log").open("ab") as log:
            self._process = subprocess.Popen(program, stdout=log, stderr=log)
        deadline = time.monotonic() + TIMEOUT_S
        while not self._answers():
            assert time.monotonic() < deadline, (self._folder / "chdb.log").read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self.resume()
            self._process.terminate()
            self._process.wait(TIMEOUT_S)
            self._process = None

    def pause(self) -> None:
        """It takes connections and requests, and answers none."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def query(self, statement: str) -> str:
        """The answer in the format that the statement names."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        headers = {"X-ClickHouse-User": clickhouse_server.USER, "X-ClickHouse-Key": clickhouse_server.PASSWORD}
        connection.request("POST", f"/?database={clickhouse_server.DATABASE}", statement.encode(), headers)
        response = connection.getresponse()
        answer = response.read().decode()
        connection.close()
        assert response.status == 200, answer
        return answer

    def _answers(self) -> bool:
        try:
            return self.query("SELECT 1 FORMAT CSV") == "1\n"
        except (OSError, HTTPException):
            return False


def running_server(folder: Path) -> Iterator[ClickHouseServer]:
    server = ClickHouseServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def create_store(server: ClickHouseServer, *, days: int = 3_650) -> ClickHouseReadingStore:
    return ClickHouseReadingStore(ClickHouseConnectionConfig.parse(server.url), days=days)


class MemoryReadingStore:
    def __init__(self) -> None:
        self.rows: dict[tuple[DeviceKey, MessageKey], ArchivedMessageReadings] = {}
        self.fails: Exception | None = None
        self.added = 0

    async def add_many(self, messages: Sequence[tuple[DeviceKey, ArchivedMessageReadings]]) -> None:
        self._may_fail()
        self.added += len(messages)
        self.rows |= {(device, (each.at_ms, each.digest)): each for device, each in messages}

    async def list_page(
        self, device: DeviceKey, since_ms: int, until_ms: int, limit: int, after: MessageKey | None, *, newest_first: bool = True
    ) -> Sequence[ArchivedMessageReadings]:
        self._may_fail()
        found = [each for (owner, (at_ms, _)), each in self.rows.items() if owner == device and since_ms <= at_ms < until_ms]
        found.sort(key=_key, reverse=newest_first)
        if after is not None:
            found = [each for each in found if (_key(each) < after if newest_first else _key(each) > after)]
        return found[:limit]

    async def delete_device(self, device_no: int) -> None:
        self._may_fail()
        self.rows = {key: each for key, each in self.rows.items() if key[0][0] != device_no}

    def _may_fail(self) -> None:
        if self.fails is not None:
            raise self.fails


def _key(message: ArchivedMessageReadings) -> MessageKey:
    return message.at_ms, message.digest
