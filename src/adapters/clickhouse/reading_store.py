"""Readings in ClickHouse, over its HTTP interface: one row per message, the readings as a JSON object by metric.

A row is stored when ClickHouse answers 200: the table syncs each insert to the disk. ReplacingMergeTree removes rows with equal
keys some time later, so every read drops them as well.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import structlog

from domain.kernel.errors import Unavailable
from domain.rules.model import MetricValue
from domain.telemetry.ports import NOT_ANSWERING, ArchivedMessageReadings, DeviceKey, MessageKey

READ_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 60.0
"""For an insert of 20,000 messages, and for a delete, which rewrites a mark in each part of the device."""
MAX_READS = 3
"""At a time. Each holds one of the database's few reading connections meanwhile; the others are for everybody else."""
READ_TURN_TIMEOUT_S = 1.0
CONNECTIONS = 8
MAX_ERROR_LENGTH = 300

_TIME = "fromUnixTimestamp64Milli(at_ms, 'UTC')"
_TTL = f"toDateTime({_TIME}) + toIntervalDay({{days}})"
CREATE_TABLE = f"""
CREATE TABLE IF NOT EXISTS readings (
  device_no Int64,
  device_id LowCardinality(String),
  at_ms Int64 CODEC(Delta, ZSTD),
  digest Int32,
  ahead_ms Nullable(Int64) CODEC(ZSTD),
  readings String CODEC(ZSTD(3)),
  at DateTime64(3, 'UTC') ALIAS {_TIME}
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM({_TIME})
ORDER BY (device_no, device_id, at_ms, digest)
TTL {_TTL}
SETTINGS ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1
"""
SET_TTL = f"ALTER TABLE readings MODIFY TTL {_TTL} SETTINGS materialize_ttl_after_modify = 0"
INSERT = "INSERT INTO readings (device_no, device_id, at_ms, digest, ahead_ms, readings) FORMAT JSONCompactEachRow"
DELETE_DEVICE = "DELETE FROM readings WHERE device_no = {device_no:Int64} SETTINGS lightweight_deletes_sync = 2"
_PAGE = """
SELECT at_ms, digest, ahead_ms, readings FROM readings
WHERE device_no = {{device_no:Int64}} AND device_id = {{device_id:String}}
  AND at_ms >= {{since:Int64}} AND at_ms < {{until:Int64}} AND (at_ms, digest) {than} ({{ts:Int64}}, {{digest:Int64}})
ORDER BY at_ms {order}, digest {order} LIMIT 1 BY at_ms, digest LIMIT {{limit:UInt32}} FORMAT JSONCompactEachRow
"""
PAGE_NEWEST_FIRST = _PAGE.format(than="<", order="DESC")
PAGE_OLDEST_FIRST = _PAGE.format(than=">", order="ASC")
_BELOW_ANY_DIGEST = -(2**31) - 1

log = structlog.get_logger("clickhouse")


@dataclass(frozen=True, slots=True)
class ClickHouseConnectionConfig:
    url: str
    """Without user and database."""
    user: str
    password: str
    database: str

    @classmethod
    def parse(cls, url: str) -> ClickHouseConnectionConfig:
        """Raises ValueError."""
        parts = urlsplit(url)
        database = parts.path.strip("/")
        if parts.scheme not in ("http", "https") or not parts.hostname or "/" in database or parts.query or parts.fragment:
            raise ValueError("must be the HTTP address of a ClickHouse database: https://user:password@host:8443/database")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        port = parts.port or (8443 if parts.scheme == "https" else 8123)
        user, password = unquote(parts.username or "default"), unquote(parts.password or "")
        return cls(f"{parts.scheme}://{host}:{port}/", user, password, unquote(database) or "default")


class ClickHouseReadingStore:
    """Close it."""

    def __init__(self, address: ClickHouseConnectionConfig, *, days: int) -> None:
        """`days`: how long messages are kept after their time."""
        self._days = days
        self._has_table = False
        self._lock = asyncio.Lock()
        self._reads = asyncio.Semaphore(MAX_READS)
        self._client = httpx.AsyncClient(
            base_url=address.url,
            headers={"X-ClickHouse-User": address.user, "X-ClickHouse-Key": address.password},
            # Errors come before the first row, not in the middle of an answer.
            params={"database": address.database, "wait_end_of_query": "1"},
            limits=httpx.Limits(max_connections=CONNECTIONS),
            trust_env=False,
            follow_redirects=False,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def add_many(self, messages: Sequence[tuple[DeviceKey, ArchivedMessageReadings]]) -> None:
        if not messages:
            return
        await self._ensure_table()
        rows = await asyncio.to_thread(_encode, messages)
        # Late readings may be of any month; a limit of months would hold them up for ever.
        await self._send(rows, {"query": INSERT, "max_partitions_per_insert_block": "0", "async_insert": "0"}, WRITE_TIMEOUT_S)

    async def list_page(
        self, device: DeviceKey, since_ms: int, until_ms: int, limit: int, after: MessageKey | None, *, newest_first: bool = True
    ) -> Sequence[ArchivedMessageReadings]:
        ts, digest = after or (until_ms if newest_first else since_ms, _BELOW_ANY_DIGEST)
        # The tuple alone would not narrow what the primary key reads.
        since_ms, until_ms = (since_ms, min(until_ms, ts + 1)) if newest_first else (max(since_ms, ts), until_ms)
        parameters: dict[str, object] = {"device_no": device[0], "device_id": device[1], "since": since_ms, "until": until_ms}
        parameters |= {"ts": ts, "digest": digest, "limit": limit}
        statement = PAGE_NEWEST_FIRST if newest_first else PAGE_OLDEST_FIRST
        answer = await self._read(statement, parameters)
        try:
            return [_decode(line) for line in answer.splitlines()]
        except (ValueError, TypeError) as error:
            raise _unavailable(f"an unexpected answer: {error!r}") from error

    async def delete_device(self, device_no: int) -> None:
        await self._ensure_table()
        await self._run(DELETE_DEVICE, {"device_no": device_no}, WRITE_TIMEOUT_S)

    async def _ensure_table(self) -> None:
        async with self._lock:
            if not self._has_table:
                await self._run(CREATE_TABLE.format(days=self._days), {}, WRITE_TIMEOUT_S)
                await self._run(SET_TTL.format(days=self._days), {}, WRITE_TIMEOUT_S)
                self._has_table = True

    async def _read(self, statement: str, parameters: Mapping[str, object]) -> bytes:
        try:
            await asyncio.wait_for(self._reads.acquire(), READ_TURN_TIMEOUT_S)
        except TimeoutError as error:
            raise _unavailable("other reads are still waiting for it") from error
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                await self._ensure_table()
                return await self._run(statement, parameters, READ_TIMEOUT_S)
        except TimeoutError as error:
            raise _unavailable("no answer in time") from error
        finally:
            self._reads.release()

    async def _run(self, statement: str, parameters: Mapping[str, object], timeout_s: float) -> bytes:
        values = {f"param_{name}": str(value) for name, value in parameters.items()}
        values |= {"max_execution_time": f"{timeout_s:.0f}", "output_format_json_quote_64bit_integers": "0"}
        return await self._send(statement.encode(), values, timeout_s)

    async def _send(self, content: bytes, parameters: Mapping[str, str], timeout_s: float) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._client.post("", content=content, params=parameters, timeout=timeout_s)
        except (httpx.HTTPError, TimeoutError) as error:
            raise _unavailable(repr(error)) from error
        if response.status_code != 200:
            self._has_table = False  # it may be another server now
            raise _unavailable(response.text[:MAX_ERROR_LENGTH])
        return response.content


def _unavailable(detail: str) -> Unavailable:
    log.warning("ClickHouse did not do what it was asked for", error=detail)
    return Unavailable(NOT_ANSWERING)


def _encode(messages: Iterable[tuple[DeviceKey, ArchivedMessageReadings]]) -> bytes:
    return b"\n".join(
        json.dumps([*device, each.at_ms, each.digest, each.ahead_ms, _encode_readings(each.readings)]).encode()
        for device, each in messages
    )


def _encode_readings(readings: Iterable[tuple[str, MetricValue]]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in readings) + "}"


def _decode(line: bytes) -> ArchivedMessageReadings:
    at_ms, digest, ahead_ms, readings = json.loads(line)
    return ArchivedMessageReadings(at_ms, digest, ahead_ms, _decode_readings(readings))


def _decode_readings(text: str) -> Any:
    """Pairs, because a message may have a metric twice."""
    return json.loads(text, object_pairs_hook=tuple, parse_int=float)
