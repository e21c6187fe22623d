"""The reference engine: messages in; rows, rule transitions and firings out. The native engine must equal it, call for call.

A message is parsed (`reference_parser.py`), becomes a row (`packing.py`), replaces the device's last values, and the
device's rules (`rules/reference_rules.py`) are evaluated at its arrival. A message whose device says that it is older than the
newest one is late: rules do not see it, and `latest` only where it has nothing newer of a metric. A message without a usable `ts`
is late only if it arrived more than MAX_AHEAD_MS before the newest one, because it was set aside meanwhile.

Timers run in the time of the messages: before a message is evaluated, the device's timers advance to its arrival, and each rule
that was due before is evaluated at the time when it was due. So a message that has waited changes nothing but when it is told.

Time in which a device could not be heard (`deafen`) is not counted: the device's timers stand still until it speaks or all are
heard again, and what had to last then goes on from there. A message that arrived in that time shows that the device was heard
until then.

No clock is trusted. When all messages of a device have been late for MAX_AHEAD_MS, its newest time is not believed any longer,
and the next message is not late. When the service's own clock is set, `shift_clock` moves all that counts from an arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from domain.kernel.clock import MINUTE_MS
from domain.partitions.model import partition_of
from domain.rules.model import EngineRule, InstantDryRunResult, LatestReading, MetricValue, in_firing_order
from domain.rules.ports import BucketAggregator, Checkpoint, ClockOffset, RawTelemetryBatch, UnpackedReading
from domain.rules.reference import LastMetricValue, explain_rule, watches_silence
from domain.telemetry import packing
from domain.telemetry.aggregation import ReferenceBucketAggregator
from domain.telemetry.reference_device import (
    ReferenceBatchResult,
    ReferenceDeviceTelemetryState,
    ReferenceMetricState,
    TrackedRule,
)
from domain.telemetry.reference_parser import (
    MAX_AHEAD_MS,
    MAX_METRICS,
    TOO_MANY_METRICS,
    MessageTime,
    ParsedPayload,
    ParsedTelemetryMessage,
    parse_payload,
    shown_metric,
)

MAX_SEARCHED = 2_048
"""How many messages are searched for names without a number, from the first one that has such a name."""
MAX_QUEUED_MS = 10 * MINUTE_MS
"""How long before the clock was set a message may have arrived that is ingested after it."""


class ReferenceTelemetryEngine:
    """The `TelemetryEngine` port in Python."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._devices: dict[int, ReferenceDeviceTelemetryState] = {}
        self._metric_numbers: dict[str, int] = {}
        self._metric_names: dict[int, str] = {}
        self._dirty_devices: dict[int, None] = {}
        self._old_stamps: range = range(0)
        """Arrivals of messages that arrived shortly before the service's clock was set forward; it ends at that moment."""

    def set_rules(self, device_no: int, rules: Sequence[EngineRule]) -> None:
        device = self._get_or_create_device(device_no)
        device.rules = [TrackedRule(rule, rule.state) for rule in in_firing_order(rules)]
        device.reset_timers()

    def remove_device(self, device_no: int) -> None:
        self._devices.pop(device_no, None)
        self._dirty_devices.pop(device_no, None)

    def set_watched(self, device_no: int, on: bool) -> None:
        self._get_or_create_device(device_no).watched = on

    def add_metric_names(self, names: Sequence[tuple[int, str]]) -> None:
        for number, name in names:
            self._metric_numbers[name] = number
            self._metric_names[number] = name

    def restore(self, device_no: int, latest: bytes, now_ms: int | None = None) -> None:
        newest_ms, metrics, later = packing.unpack_latest(latest)
        named = {self._metric_name(metric.metric_no): metric for metric in metrics}
        named_later = {self._metric_name(metric.metric_no): metric for metric in later}
        device = self._get_or_create_device(device_no)
        device.metrics = {
            name: ReferenceMetricState(
                metric.metric_no, metric.unit, LastMetricValue(metric.value, metric.ts_ms, _at_most(metric.arrived_ms, now_ms))
            )
            for name, metric in named.items()
        }
        for name, metric in named_later.items():
            state = device.metrics.setdefault(name, ReferenceMetricState(metric.metric_no, metric.unit))
            state.later = LastMetricValue(metric.value, metric.ts_ms, metric.arrived_ms)
        arrived_ms = max((each.last_report.arrived_ms for each in device.metrics.values() if each.last_report), default=newest_ms)
        device.set_newest(MessageTime(_at_most(newest_ms, now_ms)), arrived_ms)
        device.at_checkpoint = True
        device.reset_timers()

    def replay(self, device_no: int, ts_ms: int, packed: bytes, now_ms: int | None = None) -> None:
        named = [(self._metric_name(number), number, value) for number, value in packing.unpack_readings(packed)]
        device = self._get_or_create_device(device_no)
        if device.newest_ms is not None and now_ms is not None and device.newest_ms <= now_ms + MAX_AHEAD_MS < ts_ms:
            return
        is_late = device.newest_ms is not None and ts_ms < device.newest_ms
        behind_ms = 0 if device.newest_ms is None else device.arrived_ms - device.newest_ms
        report_time = ts_ms, _at_most(ts_ms + behind_ms, now_ms)
        reports = [(device.metrics.setdefault(name, ReferenceMetricState(number)), value) for name, number, value in named]
        if is_late:
            if sum(metric.report_late(LastMetricValue(value, *report_time), now_ms) for metric, value in reports):
                self._dirty_devices[device_no] = None
            return
        for metric, value in reports:
            metric.report(LastMetricValue(value, *report_time), now_ms)
        device.set_newest(MessageTime(ts_ms), report_time[1])
        self._dirty_devices[device_no] = None
        device.reset_timers()

    def ingest(self, batch: RawTelemetryBatch, now_ms: int | None = None, start: int = 0) -> ReferenceBatchResult:
        messages = [(device_no, self._arrival_ms(at_ms, now_ms), payload) for device_no, at_ms, payload in batch.messages()]
        result = ReferenceBatchResult(consumed=len(messages))
        for index, (device_no, arrived_ms, payload) in enumerate(messages[start:], start):
            if device_no in self._devices:
                if arrived_ms >= self._devices[device_no].deaf_until_ms:
                    self._hear(device_no, arrived_ms, result)
                self._devices[device_no].advance(arrived_ms, result)
            parsed = parse_payload(payload, arrived_ms)
            if self._unknown_names([(device_no, parsed)]):
                result.consumed = index
                searched = messages[index : index + MAX_SEARCHED]
                result.unknown_metric_names = self._unknown_names(
                    (no, parse_payload(sent, at_ms)) for no, at_ms, sent in searched
                )
                break
            result.newest_arrivals[device_no] = max(arrived_ms, result.newest_arrivals.get(device_no, arrived_ms))
            device = self._get_or_create_device(device_no)
            for message in parsed.messages:
                self._ingest_message(device, message, arrived_ms, now_ms, result)
            for code, count in parsed.faults.items():
                result.fault_counts[device_no, code] += count
            for code, metric in parsed.fault_metrics.items():
                result.named_faults.setdefault((device_no, code), metric)
            if parsed.ahead_ms is not None:
                result.ahead_ms[device_no] = parsed.ahead_ms
        result.checkpoints = [self._pack_latest(self._devices[device_no]) for device_no in sorted(result.not_replayed)]
        return result

    def shift_clock(self, step_ms: int, now_ms: int) -> ReferenceBatchResult:
        result = ReferenceBatchResult()
        self._old_stamps = range(now_ms - step_ms - MAX_QUEUED_MS, now_ms)
        for device_no, device in sorted(self._devices.items()):
            device.shift_clock(step_ms, now_ms, result)
            if device.newest_ms is not None and any(watches_silence(tracked.rule) for tracked in device.rules):
                self._dirty_devices[device_no] = None
        return result

    def deafen(
        self, since_ms: int, until_ms: int, partition: tuple[int, int] | None = None, connected: Mapping[int, int] | None = None
    ) -> ReferenceBatchResult:
        result = ReferenceBatchResult()
        for device_no, device in sorted(self._devices.items()):
            if partition is None or partition_of(device_no, partition[1]) == partition[0]:
                device.deafen(since_ms, until_ms)
                if connected and device_no in connected:
                    self._hear(device_no, connected[device_no], result)
        return result

    def hear_all(self, at_ms: int) -> ReferenceBatchResult:
        result = ReferenceBatchResult()
        for device_no in sorted(self._devices):
            self._hear(device_no, at_ms, result)
        return result

    def _hear(self, device_no: int, at_ms: int, result: ReferenceBatchResult) -> None:
        device = self._devices.get(device_no)
        if device is None or device.deaf_since_ms is None:
            return
        device.hear(at_ms, result)
        if device.newest_ms is not None and any(watches_silence(tracked.rule) for tracked in device.rules):
            self._dirty_devices[device_no] = None

    def tick(self, now_ms: int) -> ReferenceBatchResult:
        result = ReferenceBatchResult()
        for _, device in sorted(self._devices.items()):
            due = [tracked for tracked in device.running if tracked.due_ms is not None and tracked.due_ms <= now_ms]
            device.evaluate_rules(due, now_ms, result)
        return result

    def next_timer_ms(self) -> int | None:
        due = (tracked.due_ms for device in self._devices.values() for tracked in device.running)
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

    def checkpoint(self, limit: int) -> list[Checkpoint]:
        return self._take_checkpoints(list(self._dirty_devices)[:limit])

    def _take_checkpoints(self, taken: Sequence[int]) -> list[Checkpoint]:
        for device_no in taken:
            del self._dirty_devices[device_no]
        return [self._pack_latest(self._devices[device_no]) for device_no in taken]

    def drop_partition(self, partition: int, partitions: int) -> int:
        dropped = [device_no for device_no in self._devices if partition_of(device_no, partitions) == partition]
        for device_no in dropped:
            self.remove_device(device_no)
        return len(dropped)

    def checkpoint_partition(self, partition: int, partitions: int, limit: int) -> list[Checkpoint]:
        dirty = [device_no for device_no in self._dirty_devices if partition_of(device_no, partitions) == partition]
        return self._take_checkpoints(dirty[:limit])

    def clock_offsets(self, device_nos: Sequence[int]) -> list[ClockOffset]:
        devices = [self._devices[device_no] for device_no in device_nos if device_no in self._devices]
        return [
            (device.number, device.newest_ms - device.arrived_ms)
            for device in devices
            if device.time_by_device and device.newest_ms is not None
        ]

    def latest(self, device_no: int) -> list[LatestReading]:
        device = self._devices.get(device_no)
        return [
            LatestReading(name, metric.latest.value, metric.unit, metric.latest.ts_ms)
            for name, metric in (device.metrics.items() if device else ())
            if metric.latest is not None
        ]

    def dry_run(self, device_no: int, rule: EngineRule, readings: Mapping[str, MetricValue], at_ms: int) -> InstantDryRunResult:
        device = self._devices.get(device_no)
        reports = device.last_reports() if device else {}
        given = {name: LastMetricValue(value, at_ms, at_ms) for name, value in readings.items()}
        return explain_rule(rule, {**reports, **given}, at_ms)

    def unpack_readings(self, rows: Iterable[tuple[int, bytes]], metric_no: int | None = None) -> list[UnpackedReading]:
        return packing.unpack_rows(rows, metric_no)

    def create_aggregator(self, step_ms: int, metric_no: int | None = None) -> BucketAggregator:
        return ReferenceBucketAggregator(step_ms=step_ms, metric_no=metric_no)

    def _arrival_ms(self, stamped_ms: int, now_ms: int | None) -> int:
        """A message that arrived before the service's clock was set has a stamp of the clock as it was: it arrived just now."""
        stamped_ms = _at_most(stamped_ms, now_ms)
        return self._old_stamps.stop if stamped_ms in self._old_stamps else stamped_ms

    def _ingest_message(
        self,
        device: ReferenceDeviceTelemetryState,
        message: ParsedTelemetryMessage,
        arrived_ms: int,
        now_ms: int | None,
        result: ReferenceBatchResult,
    ) -> None:
        result.message_count += 1
        accepted = self._register_metrics(device, message, result)
        if not accepted:
            return
        result.reading_count += len(accepted)
        time = message.time
        ahead_ms = None if time.reported_ms is None else time.reported_ms - time.ts_ms
        numbered = ((device.metrics[name].number, value) for name, value in accepted.items())
        packed = packing.pack_readings(numbered, ahead_ms)
        result.rows.append((device.number, time.ts_ms, packing.row_digest(packed), packed))
        if device.watched:
            result.watched_readings += [
                (device.number, time.ts_ms, name, *packing.value_columns(value), device.metrics[name].unit)
                for name, value in accepted.items()
            ]
        reports = [(device.metrics[name], LastMetricValue(value, time.ts_ms, arrived_ms)) for name, value in accepted.items()]
        is_replayed = device.is_replayed(time.ts_ms)
        is_late = device.is_late(time, arrived_ms)
        if is_late:
            if not sum(metric.report_late(report, now_ms) for metric, report in reports):
                return
        else:
            device.set_newest(time, arrived_ms)
            for metric, report in reports:
                metric.report(report, now_ms)
        self._dirty_devices[device.number] = None
        if not is_replayed:
            result.not_replayed[device.number] = None
        if not is_late:
            device.evaluate_rules(device.rules, arrived_ms, result)

    def _register_metrics(
        self, device: ReferenceDeviceTelemetryState, message: ParsedTelemetryMessage, result: ReferenceBatchResult
    ) -> dict[str, MetricValue]:
        """The readings of the message without those that exceed the metric limit of the device."""
        accepted = {}
        for name, value in message.readings.items():
            metric = device.metrics.get(name)
            is_new = metric is None
            if metric is None:
                if len(device.metrics) >= MAX_METRICS:
                    result.fault_counts[device.number, TOO_MANY_METRICS] += 1
                    result.named_faults.setdefault((device.number, TOO_MANY_METRICS), shown_metric(name))
                    continue
                metric = device.metrics[name] = ReferenceMetricState(self._metric_numbers[name])
            unit = message.units.get(name, metric.unit)
            if is_new or unit != metric.unit:
                metric.unit = unit
                result.new_metrics.append((device.number, metric.number, name, unit))
            accepted[name] = value
        return accepted

    def _unknown_names(self, payloads: Iterable[tuple[int, ParsedPayload]]) -> list[str]:
        """Names without a number that the messages need, by first appearance: of each device no more than it may have metrics."""
        metrics: dict[int, dict[str, None]] = {}
        unknown: dict[str, None] = {}
        for device_no, parsed in payloads:
            device = self._devices.get(device_no)
            known = metrics.setdefault(device_no, dict.fromkeys(device.metrics if device else ()))
            for name in [name for message in parsed.messages for name in message.readings]:
                if name in known or len(known) >= MAX_METRICS:
                    continue
                known[name] = None
                if name not in self._metric_numbers:
                    unknown[name] = None
        return list(unknown)

    def _metric_name(self, number: int) -> str:
        if number not in self._metric_names:
            raise ValueError(f"metric number {number} has no name; load the names first")
        return self._metric_names[number]

    def _get_or_create_device(self, device_no: int) -> ReferenceDeviceTelemetryState:
        return self._devices.setdefault(device_no, ReferenceDeviceTelemetryState(device_no))

    def _pack_latest(self, device: ReferenceDeviceTelemetryState) -> Checkpoint:
        device.at_checkpoint = True
        newest_ms = device.newest_ms or 0
        metrics = [
            packing.CheckpointMetricValue(metric.number, report.value, report.ts_ms, report.arrived_ms, metric.unit)
            for metric in device.metrics.values()
            if (report := metric.last_report) is not None
        ]
        later = [
            packing.CheckpointMetricValue(metric.number, report.value, report.ts_ms, report.ts_ms, metric.unit)
            for metric in device.metrics.values()
            if (report := metric.later) is not None
        ]
        return device.number, newest_ms, packing.pack_latest(newest_ms, metrics, later)


def _at_most(at_ms: int, now_ms: int | None) -> int:
    return at_ms if now_ms is None else min(at_ms, now_ms)


@dataclass(frozen=True, slots=True)
class PythonTelemetryBatch:
    """A batch in Python objects, for the reference engine and for tests: (device number, arrival in Unix ms, payload) in order of
    arrival."""

    items: tuple[tuple[int, int, bytes], ...]

    @classmethod
    def of(cls, messages: Iterable[tuple[int, int, bytes]]) -> PythonTelemetryBatch:
        return cls(tuple(messages))

    def __len__(self) -> int:
        return len(self.items)

    def messages(self) -> list[tuple[int, int, bytes]]:
        return list(self.items)
