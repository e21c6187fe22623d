"""The extension, as Python sees it. Built from rust/bindings; stubtest holds this file to it."""

from collections.abc import Iterable, Sequence
from typing import Any, final

__all__ = [
    "Broker",
    "Engine",
    "Ingested",
    "Signer",
    "Simulation",
    "TelemetryBatch",
    "UplinkBatch",
    "Window",
    "allowance",
    "source_digest",
    "unpack",
]

_ConditionTuple = tuple[str, str, float, str | None]
_RuleTuple = tuple[
    int, int, bool, list[_ConditionTuple], list[_ConditionTuple], int, int, str, bool, int | None, int | None
]

@final
class TelemetryBatch:
    def __new__(cls, messages: Iterable[tuple[int, int, bytes]]) -> TelemetryBatch: ...
    def __len__(self) -> int: ...
    def messages(self) -> list[tuple[int, int, bytes]]: ...

@final
class Ingested:
    @property
    def rows(self) -> list[tuple[int, int, int, bytes]]: ...
    @property
    def new_names(self) -> list[tuple[int, str]]: ...
    @property
    def new_metrics(self) -> list[tuple[int, int, str, str | None]]: ...
    @property
    def edges(self) -> list[tuple[int, int, int, bool, int | None, int | None, bool]]: ...
    @property
    def fired(self) -> list[tuple[int, int, int]]: ...
    @property
    def suppressed(self) -> list[tuple[int, int, int, int | None]]: ...
    @property
    def watched(self) -> list[tuple[int, int, str, float | None, str | None, str | None]]: ...
    @property
    def faults(self) -> list[tuple[int, str, int]]: ...
    @property
    def seen(self) -> list[tuple[int, int]]: ...
    @property
    def messages(self) -> int: ...
    @property
    def readings(self) -> int: ...

@final
class Engine:
    def __new__(cls) -> Engine: ...
    def put_rules(self, device_no: int, rules: Sequence[_RuleTuple]) -> None: ...
    def drop_device(self, device_no: int) -> None: ...
    def watch(self, device_no: int, on: bool) -> None: ...
    def set_metrics(self, names: Sequence[tuple[int, str]]) -> None: ...
    def restore(self, device_no: int, latest: bytes) -> None: ...
    def replay(self, device_no: int, ts_ms: int, packed: bytes) -> None: ...
    def ingest(self, batch: TelemetryBatch) -> Ingested: ...
    def tick(self, now_ms: int) -> Ingested: ...
    def next_timer_ms(self) -> int | None: ...
    def checkpoint(self, limit: int) -> list[tuple[int, int, bytes]]: ...
    def latest(self, device_no: int) -> list[tuple[str, Any, str | None, int, int]]: ...

@final
class Window:
    def __new__(
        cls, days_mask: int, from_minute: int | None, to_minute: int | None, tzif: bytes, name: str
    ) -> Window: ...
    def is_open(self, at_ms: int) -> bool: ...

def allowance(uses: Sequence[int], limit: int, now_ms: int) -> tuple[bool, int, int]: ...

@final
class Signer:
    def __new__(cls, secret: str) -> Signer: ...
    def service(self, body: bytes) -> str: ...
    def standard(self, message_id: str, timestamp_s: int, body: bytes) -> str: ...
    def sign_batch(self, messages: Sequence[tuple[str, int, bytes]]) -> list[tuple[str, str]]: ...

def unpack(
    rows: Iterable[tuple[int, bytes]], metric_no: int | None = None
) -> list[tuple[int, int, float | None, str | None]]: ...
def source_digest() -> str: ...

# broker

@final
class UplinkBatch:
    """What was taken together. Forgotten without `ack` it is given up, as by `nack`."""

    @property
    def telemetry(self) -> TelemetryBatch: ...
    @property
    def events(self) -> list[tuple[Any, ...]]:
        """Kind, device number and id, what there is to it, Unix ms last; in the order of the fields in `domain.devices.link`."""

    def ack(self) -> None: ...
    def nack(self) -> None: ...

@final
class Broker:
    """The embedded MQTT broker. Every call but `start` and `stop` is short, never waits, and may come from any thread."""

    def __new__(
        cls,
        *,
        threads: int | None = None,
        max_connections: int | None = None,
        max_connections_per_device: int | None = None,
        connect_timeout_s: float | None = None,
        max_payload: int | None = None,
        max_inflight: int | None = None,
        uplink_bytes: int | None = None,
        qos0_patience_s: float | None = None,
        downlink_queue: int | None = None,
        session_expiry_s: int | None = None,
        rate_per_second: float | None = None,
        rate_burst: float | None = None,
    ) -> Broker: ...
    def start(
        self,
        addresses: Sequence[tuple[str, bool, str, int]],
        certificate: bytes | None = None,
        key: bytes | None = None,
    ) -> None:
        """`(transport, tls, host, port)` each. Raises OSError that names the address, ValueError for a bad certificate."""

    def stop(self) -> None:
        """Up to a second and a half, with the interpreter free."""

    def ports(self) -> list[int]: ...
    def admit(self, device_id: str, device_no: int, password: str, profile: str) -> None: ...
    def expel(self, device_id: str) -> bool: ...
    def kick(self, device_id: str) -> bool: ...
    def connected(self, device_id: str) -> bool: ...
    def publish(
        self, device_id: str, topic: str, payload: bytes, qos: int = 1, retain: bool = False, expiry_s: int | None = None
    ) -> bool: ...
    def publish_many(self, letters: Sequence[tuple[str, str, bytes, int, bool, int | None]]) -> list[bool]: ...
    def take(self, limit: int) -> UplinkBatch | None: ...
    def stopped(self) -> bool: ...
    def fileno(self) -> int:
        """Readable exactly while there is something to take, and for ever once the broker has stopped."""

    def stats(self) -> dict[str, int]: ...

@final
class Simulation:
    """A fleet of simulated devices, `(device id, password)` each, that runs until `stop` or its time is over.

    `trust`: PEM certificates; with them the connection is TLS. `version`: the MQTT protocol level, 4 (3.1.1) or 5. Shares
    (`silent`, `duplicating`, `late`, `slow`) are of the devices, 0 to 1."""

    def __new__(
        cls,
        host: str,
        port: int,
        devices: Sequence[tuple[str, str]],
        *,
        websocket: bool = False,
        trust: bytes | None = None,
        version: int = 4,
        profile: str = "native",
        rate: float = 100.0,
        qos: int = 1,
        seconds: float | None = None,
        window: int = 20,
        connecting: int = 200,
        silent: float = 0.0,
        duplicating: float = 0.0,
        late: float = 0.0,
        slow: float = 0.0,
        slowness_s: float = 2.0,
        reconnect_every_s: float | None = None,
        dirty_every_s: float | None = None,
        storm_every_s: float | None = None,
        journal: bool = False,
        threads: int = 1,
    ) -> Simulation: ...
    def running(self) -> bool: ...
    def stop(self) -> None: ...
    def storm(self) -> None: ...
    def clear_times(self) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def journal(self) -> list[tuple[str, list[tuple[int, int]]]]: ...
