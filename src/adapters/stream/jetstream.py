"""The inbound log on NATS JetStream: one stream for each partition, each entry on the disks of a majority of three nodes.

A stream rejects what does not fit, and nobody deletes from it. Entries are read by sequence (batched direct get), without a
consumer on the server: the database holds the position, and no acknowledgement, redelivery or group of the server takes part. A
stream's sequence counts its entries without gaps, so a missing entry shows. A replica that lags behind answers as if it ended
earlier; only the leader's word counts for damage. The owner of a partition does not ask for what it appended itself: once
confirmed, position and content are known.

By default a node of NATS writes to its disk only every two minutes, so `find_unsafe` asks the nodes whether they keep what they
confirm.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from time import monotonic
from typing import Any

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js import errors as js_errors

from domain.kernel.errors import Unavailable
from domain.partitions.ports import MISSING, AppendUnconfirmedError, InboundLogDamagedError, InboundLogEntry

MAX_CACHED_BYTES = 64 * 1024
"""For each partition. Whoever reads slower than this instance appends reads from the log."""
DUPLICATE_WINDOW_S = 120
"""An entry that is appended again within this time, because its confirmation was lost, is stored once."""
APPEND_TIMEOUT_S = 2.0
GIVE_UP_S = 20.0
"""An entry that is not confirmed for so long is given up; shorter than the duplicate window."""
RETRY_S = 0.1
POLL_S = 0.5
"""A notification of a new entry may be lost; then it is found this much later."""
LAG_S = 0.01
"""An entry is known to exist but the replica that answered does not have it yet."""
CHECK_S = 5.0
"""How often a partition without new entries is compared with its stream."""
STALE_LEADER_S = 15.0
"""A node that hung answers as leader with an old state until it learns of the new one, ten seconds at most. Only what every
answer says for longer than that is a loss."""
READ_TIMEOUT_S = 2.0
MAX_READ_BYTES = 4 * 1024 * 1024
FIRST_BYTES = 32 * 1024 * 1024
"""A new stream may have so much: NATS reserves the bound of a stream on the disk of each node, whether it is used or not."""
_IS_FULL = 10_077
_NO_ROOM = frozenset({10_005, 10_023, 10_047})
"""NATS' codes: a stream has reached its bound; no node, or not enough of them, can reserve what a stream asks for."""
MIN_NODES = 3
MIN_VERSION = (2, 12)
MONITOR_TIMEOUT_S = 3.0

_ERRORS = (nats.errors.Error, OSError, TimeoutError)

log = structlog.get_logger("stream")


class JetStreamLog:
    def __init__(
        self,
        servers: Sequence[str],
        partition_count: int,
        *,
        replicas: int = 3,
        max_bytes: int,
        prefix: str = "latchboard",
        open_timeout_s: float = 15.0,
    ) -> None:
        """`max_bytes` bounds each stream, which begins smaller and grows. When it is full, `append` fails and nothing is
        deleted."""
        self._open_timeout_s = open_timeout_s
        self._servers = list(servers)
        self._count = partition_count
        self._replicas = replicas
        self._max_bytes = max_bytes
        self._prefix = prefix
        self.client = Client()
        self._js: JetStreamContext = self.client.jetstream(timeout=APPEND_TIMEOUT_S)
        self._last_known = [0] * partition_count
        """The last position of each partition that this instance knows to exist."""
        self._own = [AppendedInboundLogEntryCache() for _ in range(partition_count)]
        self._grown = [asyncio.Event() for _ in range(partition_count)]
        self._checked_at = [0.0] * partition_count
        self.appends = self.append_retries = 0

    async def open(self) -> None:
        try:
            async with asyncio.timeout(self._open_timeout_s):
                await self._connect()
                for partition in range(self._count):
                    await self._ensure_stream(partition)
        except _ERRORS as error:
            await self.close()
            if _is_out_of_room(error):
                raise Unavailable(self._room_message(error)) from error
            raise Unavailable(
                f"The cluster's log does not answer ({_error_text(error)}). Check LATCHBOARD_CLUSTER, that NATS runs with "
                f"JetStream, and that {self._replicas} of its nodes are up."
            ) from error

    def _room_message(self, error: Exception) -> str:
        return (
            f"The NATS nodes have no room for the cluster's log ({_error_text(error)}). Its {self._count} streams reserve "
            f"{mib(self._count * min(FIRST_BYTES, self._max_bytes))} on each node at the start, and up to "
            f"{mib(self._count * self._max_bytes)} when devices fill them. Give JetStream's store_dir a larger disk, raise "
            "max_file_store, or lower LATCHBOARD_CLUSTER_PARTITIONS (before the first start) or LATCHBOARD_CLUSTER_LOG_MIB."
        )

    async def _connect(self) -> None:
        await self.client.connect(
            servers=self._servers,
            connect_timeout=2,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,  # type: ignore[arg-type]  # seconds, as float too
            ping_interval=2,
            max_outstanding_pings=2,
            error_cb=_log_error,
        )
        await self.client.subscribe(f"{self._prefix}.appended.*", cb=self._on_appended)

    async def close(self) -> None:
        await self.client.close()

    async def log_ids(self, partitions: Collection[int]) -> Mapping[int, str]:
        found = await asyncio.gather(*[self._log_id(partition) for partition in partitions])
        return {partition: log_id for partition, log_id in zip(partitions, found, strict=True) if log_id is not None}

    async def _log_id(self, partition: int) -> str | None:
        try:
            created = (await self._stream_info(partition)).created
        except InboundLogDamagedError:
            return MISSING
        except Unavailable:
            return None
        return None if created is None else created.isoformat()

    async def last_positions(self) -> Mapping[int, int]:
        """Partition → position of its last entry, of those logs that answer. Raises Unavailable."""
        try:
            found = {info.config.name: info.state.last_seq for info in await self._js.streams_info()}
        except _ERRORS as error:
            raise Unavailable(f"The cluster's log does not answer ({_error_text(error)}).") from error
        names = {partition: self._stream_name(partition) for partition in range(self._count)}
        return {partition: found[name] for partition, name in names.items() if name in found}

    async def append(self, partition: int, body: bytes, entry_id: str) -> int:
        give_up_at = monotonic() + GIVE_UP_S
        while True:
            try:
                ack = await self._js.publish(
                    self._subject(partition),
                    body,
                    timeout=APPEND_TIMEOUT_S,
                    stream=self._stream_name(partition),
                    headers={"Nats-Msg-Id": entry_id},
                )
                break
            except _ERRORS as error:
                if _is_full(error) and await self._grow(partition):
                    continue
                if monotonic() > give_up_at:
                    raise AppendUnconfirmedError(
                        f"The cluster's log did not confirm an entry within {GIVE_UP_S:.0f} s ({_error_text(error)}). "
                        "The devices send it again. Check that a majority of the NATS nodes is up and that their disks have room."
                    ) from error
                self.append_retries += 1
                await asyncio.sleep(RETRY_S)
        self.appends += 1
        self._own[partition].add(InboundLogEntry(ack.seq, body), is_duplicate=bool(ack.duplicate))
        self._record_growth(partition, ack.seq)
        await self._notify_owner(partition, ack.seq)
        return ack.seq

    async def read(self, partition: int, after: int, limit: int, wait_s: float) -> Sequence[InboundLogEntry]:
        until = monotonic() + wait_s
        while True:
            self._grown[partition].clear()
            if own := self._own[partition].read(after, limit):
                return own
            entries = await self._fetch(partition, after, limit)
            if entries:
                if entries[0].position != after + 1:
                    await self._check_missing(partition, after)
                    entries = []  # the leader has it: a replica answered wrongly
                else:
                    return entries
            elif monotonic() - self._checked_at[partition] > CHECK_S:
                await self._check_end(partition, after)
            left_s = until - monotonic()
            if left_s <= 0:
                return ()
            await self._wait_for_growth(partition, after, left_s)

    async def trim(self, partition: int, up_to: int) -> None:
        try:
            await self._js.purge_stream(self._stream_name(partition), seq=up_to + 1)
        except _ERRORS as error:
            raise Unavailable(f"The cluster's log cannot delete old entries now ({_error_text(error)}).") from error
        self._own[partition].drop_to(up_to)

    def last_known_position(self, partition: int) -> int:
        """The last position of the partition that this instance knows to exist."""
        return self._last_known[partition]

    def _stream_name(self, partition: int) -> str:
        return f"{self._prefix}-inbound-{partition:03d}"

    def _subject(self, partition: int) -> str:
        return f"{self._prefix}.inbound.{partition}"

    async def _ensure_stream(self, partition: int) -> None:
        try:
            await self._js.stream_info(self._stream_name(partition))
        except js_errors.NotFoundError:
            await self._js.add_stream(
                name=self._stream_name(partition),
                subjects=[self._subject(partition)],
                num_replicas=self._replicas,
                storage=api.StorageType.FILE,
                retention=api.RetentionPolicy.LIMITS,
                discard=api.DiscardPolicy.NEW,
                max_bytes=min(FIRST_BYTES, self._max_bytes),
                duplicate_window=DUPLICATE_WINDOW_S,
                allow_direct=True,
                deny_delete=True,
            )

    async def _grow(self, partition: int) -> bool:
        """Double the bound of a full stream. False if it has reached `max_bytes`, or the nodes have no room."""
        try:
            config = (await self._js.stream_info(self._stream_name(partition))).config
            before = config.max_bytes or 0
            if before >= self._max_bytes:
                return False
            await self._js.update_stream(config, max_bytes=min(2 * before, self._max_bytes))
        except _ERRORS as error:
            reason = self._room_message(error) if _is_out_of_room(error) else _error_text(error)
            log.warning("a full log of a partition could not be enlarged", partition=partition, error=reason)
            return False
        log.info("the log of a partition was enlarged", partition=partition, bytes=min(2 * before, self._max_bytes))
        return True

    async def _stream_info(self, partition: int) -> api.StreamInfo:
        try:
            return await self._js.stream_info(self._stream_name(partition))
        except js_errors.NotFoundError as error:
            raise InboundLogDamagedError(
                f"The stream {self._stream_name(partition)} does not exist in the cluster's log any more. Find out what deleted "
                "it; docs/how-to/cluster.md says how to continue without its entries."
            ) from error
        except _ERRORS as error:
            raise Unavailable(f"The cluster's log does not answer ({_error_text(error)}).") from error

    async def _check_end(self, partition: int, after: int) -> None:
        """Raises InboundLogDamagedError if the stream ends before what was read from it."""
        give_up_at = monotonic() + STALE_LEADER_S
        while (last := (await self._stream_info(partition)).state.last_seq) < after:
            if monotonic() > give_up_at:
                raise InboundLogDamagedError(
                    f"The stream {self._stream_name(partition)} ends at entry {last}, but entry {after} was read from it: the "
                    "cluster's log has lost confirmed entries. docs/how-to/cluster.md says how to continue."
                )
            await asyncio.sleep(RETRY_S)
        self._last_known[partition] = max(self._last_known[partition], last)
        self._checked_at[partition] = monotonic()

    async def _check_missing(self, partition: int, after: int) -> None:
        """Raises InboundLogDamagedError if the leader does not have the entry after `after`, although later ones exist."""
        give_up_at = monotonic() + STALE_LEADER_S
        while True:
            try:
                await self._js.get_msg(self._stream_name(partition), seq=after + 1)
            except js_errors.NotFoundError as error:
                if monotonic() > give_up_at:
                    raise InboundLogDamagedError(
                        f"The stream {self._stream_name(partition)} has no entry {after + 1}, although later ones exist: the "
                        "cluster's log has lost or deleted confirmed entries. docs/how-to/cluster.md says how to continue."
                    ) from error
            except _ERRORS as error:
                raise Unavailable(f"The cluster's log does not answer ({_error_text(error)}).") from error
            else:
                return
            await asyncio.sleep(RETRY_S)

    async def _fetch(self, partition: int, after: int, limit: int) -> list[InboundLogEntry]:
        """The entries from the first one after `after` that the answering replica has, without a gap between them."""
        inbox = self.client.new_inbox()
        request = {"seq": after + 1, "batch": limit, "max_bytes": MAX_READ_BYTES}
        entries: list[InboundLogEntry] = []
        try:
            answers = await self.client.subscribe(inbox)
            try:
                topic = f"$JS.API.DIRECT.GET.{self._stream_name(partition)}"
                await self.client.publish(topic, json.dumps(request).encode(), reply=inbox)
                while True:
                    message = await answers.next_msg(timeout=READ_TIMEOUT_S)
                    sequence = _entry_position(message)
                    if sequence is None or (entries and sequence != entries[-1].position + 1):
                        break
                    entries.append(InboundLogEntry(sequence, message.data))
            finally:
                await answers.unsubscribe()
        except _ERRORS as error:
            if not entries:
                raise Unavailable(f"The cluster's log does not answer ({_error_text(error)}).") from error
        return entries

    async def _wait_for_growth(self, partition: int, after: int, left_s: float) -> None:
        if self._last_known[partition] > after:
            await asyncio.sleep(min(LAG_S, left_s))
            return
        try:
            async with asyncio.timeout(min(POLL_S, left_s)):
                await self._grown[partition].wait()
        except TimeoutError:
            pass

    async def _notify_owner(self, partition: int, position: int) -> None:
        """Tell the owner. A lost announcement costs POLL_S."""
        try:
            await self.client.publish(f"{self._prefix}.appended.{partition}", b"%d" % position)
        except _ERRORS as error:
            log.debug("a new entry was not announced", partition=partition, error=_error_text(error))

    async def _on_appended(self, message: Msg) -> None:
        partition, position = int(message.subject.rpartition(".")[2]), int(message.data)
        if partition < self._count:
            self._record_growth(partition, position)

    def _record_growth(self, partition: int, position: int) -> None:
        self._last_known[partition] = max(self._last_known[partition], position)
        self._grown[partition].set()


def _is_full(error: Exception) -> bool:
    return isinstance(error, js_errors.APIError) and error.err_code == _IS_FULL


def _is_out_of_room(error: Exception) -> bool:
    return isinstance(error, js_errors.APIError) and error.err_code in _NO_ROOM


def mib(size: int) -> str:
    """Bytes as people read them."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"


def reserved_text(partitions: int, max_bytes: int) -> str:
    """How much of the disk of each node the log reserves, at the start and at most."""
    first, most = partitions * min(FIRST_BYTES, max_bytes), partitions * max_bytes
    return f"the log of {partitions} partitions reserves {mib(first)} of each node's disk at the start and grows to {mib(most)}"


class AppendedInboundLogEntryCache:
    """The entries that this instance appended lately to one partition: its owner reads them from memory instead of the log."""

    def __init__(self) -> None:
        self._entries: deque[InboundLogEntry] = deque()
        self._bytes = 0
        self._last = 0
        """The greatest position that the log gave this instance."""
        self._repeated: int | None = None

    def add(self, entry: InboundLogEntry, *, is_duplicate: bool = False) -> None:
        """`entry`: confirmed. `is_duplicate`: the log had it from an earlier try."""
        if entry.position <= self._last:
            if not is_duplicate:
                self._repeated = entry.position
            return
        self._last = entry.position
        self._entries.append(entry)
        self._bytes += len(entry.body)
        while self._bytes > MAX_CACHED_BYTES:
            self._drop_first()

    def drop_to(self, position: int) -> None:
        while self._entries and self._entries[0].position <= position:
            self._drop_first()

    def read(self, after: int, limit: int) -> Sequence[InboundLogEntry]:
        """Without a gap from the entry after `after` on, `limit` at most; empty if another instance appended that one.

        Drops those up to `after`: they were read. Who needs them again reads from the log. Raises InboundLogDamagedError.
        """
        if self._repeated is not None:
            raise InboundLogDamagedError(
                f"The cluster's log gave position {self._repeated} to a second entry: it has lost confirmed entries. "
                "docs/how-to/cluster.md says how to continue."
            )
        self.drop_to(after)
        found: list[InboundLogEntry] = []
        for position, entry in enumerate(self._entries, after + 1):
            if entry.position != position or len(found) == limit:
                break
            found.append(entry)
        return found

    def _drop_first(self) -> None:
        self._bytes -= len(self._entries.popleft().body)


def _entry_position(message: Msg) -> int | None:
    """The entry's sequence; None for the end of the answer."""
    headers: dict[str, Any] = message.headers or {}
    return None if "Status" in headers else int(headers["Nats-Sequence"])


def _error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def _log_error(error: Exception) -> None:
    log.warning("the connection to the cluster's log has a problem", error=_error_text(error))


async def find_unsafe(monitors: Sequence[str]) -> list[str]:
    """What makes a confirmed message unsafe, by the monitoring addresses of the nodes. Empty: nothing was found."""
    if len(monitors) < MIN_NODES:
        return [
            f"{len(monitors)} monitoring addresses of NATS nodes are given, so it cannot be checked whether {MIN_NODES} nodes "
            "write each message to disk. Set LATCHBOARD_CLUSTER_MONITOR to the addresses of all nodes, such as "
            "http://nats-1:8222,http://nats-2:8222,http://nats-3:8222."
        ]
    import httpx  # nothing else of the log uses it

    problems: list[str] = []
    async with httpx.AsyncClient(timeout=MONITOR_TIMEOUT_S) as client:
        for monitor in monitors:
            try:
                response = await client.get(f"{monitor}/varz")
                response.raise_for_status()
                problems += check_node(monitor, response.json())
            except (httpx.HTTPError, ValueError) as error:
                reason = error or type(error).__name__
                problems.append(f"The NATS node at {monitor} does not answer ({reason}). Check LATCHBOARD_CLUSTER_MONITOR.")
    return problems


def check_node(monitor: str, node: dict[str, Any]) -> list[str]:
    """`node`: what the node says of itself at `/varz`."""
    found = []
    version = tuple(int(part) for part in str(node.get("version", "0.0")).split(".")[:2])
    if version < MIN_VERSION:
        found.append(f"The NATS node at {monitor} is version {node.get('version')}. Update it to 2.12 or newer.")
    config = node.get("jetstream", {}).get("config")
    if not config:
        found.append(f"The NATS node at {monitor} runs without JetStream. Add `jetstream {{ sync_interval: always }}` to it.")
    elif not config.get("sync_always"):
        found.append(
            f"The NATS node at {monitor} does not write confirmed messages to its disk at once, so a power failure loses them. "
            "Set `sync_interval: always` in the jetstream block of its configuration."
        )
    if not node.get("cluster", {}).get("name"):
        found.append(
            f"The NATS node at {monitor} is not part of a NATS cluster. Configure three nodes with routes to each other."
        )
    return found
