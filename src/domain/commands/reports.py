"""Apply what devices report about their relay and their commands. The device's report decides.

A report may be repeated, late, or about an unknown command; it is then counted and changes only the relay state, which the device
knows best. Everything runs in the transaction of one inbound batch, on one `ExecutionChangeCollector`.

The device knows what it did. An end that the service only assumed, because the deadline passed without a report, is therefore
replaced by a report that comes later, and the event of it says what it replaces. How each firmware answers decides what may be
sent again, what ends without an answer, and what a relay report can mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from domain.commands.model import ALLOWED_TRANSITIONS, BUILT_IN_BY_NAME, Execution, ExecutionStatus, TriggeredBy
from domain.commands.ports import CommandsTx, ExecutionTransition, ExecutionWaiter
from domain.devices.channels import (
    MAX_LEVEL,
    RELAY_CHANNEL,
    Channel,
    ChannelState,
    DeclaredChannel,
    InputAction,
    number_channels,
    on_channel,
    says_something_new,
)
from domain.devices.messages import ChannelReport
from domain.devices.model import Device, DeviceStatus, FirmwareProfile
from domain.kernel.clock import MINUTE_MS
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, EventKind, Json
from domain.kernel.ids import DeviceId, ExecutionId

MAX_ATTEMPTS = 3
"""The dispatcher may write SENT meanwhile; a status only moves forward, so three attempts always suffice."""
CAUSE_WINDOW_MS = MINUTE_MS
"""How long after its deadline an execution may still count as the cause of a relay change."""
NOT_DELIVERED, NO_ANSWER = "NOT_DELIVERED", "NO_ANSWER"
"""Result codes of the ends that the service assumes at the deadline."""
_ASSUMED_CODES = (NOT_DELIVERED, NO_ANSWER)
STATE_MISMATCH = "STATE_MISMATCH"
"""The device has run the command, and its relay is not as commanded: locked, interlocked, or stuck."""
_REPORTED_ENDS = (ExecutionStatus.DONE, ExecutionStatus.FAILED)
STATUS_BY_REPORT: dict[str, ExecutionStatus] = {
    "ack": ExecutionStatus.ACKED,
    "done": ExecutionStatus.DONE,
    "error": ExecutionStatus.FAILED,
    "expired": ExecutionStatus.EXPIRED,
}
SCHEDULE_CAUSES = frozenset({"sched", "schedule"})
"""What a device gives as the cause of a relay state when it ran its copy of the plan."""


@service
class ReportService:
    execution_waiter: ExecutionWaiter
    ignored: Counter[str] = field(default_factory=Counter, init=False)
    """Number of results that changed nothing, by reason: `unknown`, `duplicate`, `late`."""

    async def write_changes(self, changes: ExecutionChangeCollector) -> None:
        """Call this after all reports of a batch."""
        await changes.write(self.execution_waiter)
        self.ignored += changes.ignored

    async def on_relay_report(
        self,
        changes: ExecutionChangeCollector,
        device: Device,
        relay: bool,
        *,
        execution_id: str | None,
        reported_cause: str | None,
        at_ms: int,
        channel: int = RELAY_CHANNEL,
    ) -> None:
        """Store whether the channel is on; emit `relay_changed` only if it changed."""
        if device.status is DeviceStatus.DELETING:
            return
        cause = await self._find_cause(
            changes, device, execution_id, channel, at_ms, lambda one: is_confirmed_by_state(device.profile, one, relay, at_ms)
        )
        self._set_relay(changes, device, channel, relay, cause, reported_cause, at_ms)
        if cause is not None and execution_id is None and device.profile is FirmwareProfile.ESPHOME:
            self._transition(changes, device, cause, ExecutionStatus.DONE, build_result("STATE_MATCH", relay), at_ms)

    async def on_channel_report(
        self, changes: ExecutionChangeCollector, device: Device, channel: int, report: ChannelReport, at_ms: int
    ) -> None:
        """Store what else is known of the channel; emit `state_changed` if it changed, of a cover when it has stopped."""
        before = changes.channel_of(device, channel)
        if device.status is DeviceStatus.DELETING or before is None:
            return
        cause = await self._find_cause(
            changes,
            device,
            report.execution_id,
            channel,
            at_ms,
            lambda one: is_confirmed_by_channel(device.profile, one, report.state, at_ms),
        )
        after = changes.set_channel(device, before, report.state)
        if after is not None and after.state.details.get("moving") is None:
            changes.add_event(_state_changed_event(device, after, cause, report.cause, at_ms))
        if cause is not None and report.execution_id is None and device.profile is FirmwareProfile.ESPHOME:
            result = build_result("STATE_MATCH", data=after.shown_state if after is not None else None)
            self._transition(changes, device, cause, ExecutionStatus.DONE, result, at_ms)

    def on_input_report(
        self, changes: ExecutionChangeCollector, device: Device, channel: int, action: InputAction, at_ms: int
    ) -> None:
        """Each press is an event; a contact that says again what is known is none."""
        known = changes.channel_of(device, channel)
        if device.status is DeviceStatus.DELETING or known is None:
            return
        changed = changes.set_channel(device, known, ChannelState(details={"action": action.value}))
        if changed is None and action.is_contact:
            return
        changes.add_event(
            DomainEvent(
                account_id=device.account_id,
                kind="input_changed",
                description=f"{known.name}: {action.value}",
                at_ms=at_ms,
                source=TriggeredBy.DEVICE.value,
                device_id=device.device_id,
                data={"channel": channel, "name": known.name, "action": action.value},
                device_name=device.name,
            )
        )

    async def on_result_report(
        self,
        changes: ExecutionChangeCollector,
        device: Device,
        execution_id: str,
        status: str,
        code: str | None,
        relay: bool | None,
        data: Json,
        at_ms: int,
    ) -> None:
        """`status` is `ack`, `done`, `error` or `expired`; anything else is ignored."""
        if device.status is DeviceStatus.DELETING:
            return
        execution = changes.get(ExecutionId(execution_id))
        if execution is None or execution.device_id != device.device_id or status not in STATUS_BY_REPORT:
            changes.ignored["unknown"] += 1
            execution = None
        channel = execution.channel if execution is not None else RELAY_CHANNEL
        if relay is not None and (execution is not None or not device.channels):  # else nobody knows whose state it is
            cause = execution if execution and can_have_caused(execution, device, at_ms) else None
            self._set_relay(changes, device, channel, relay, cause, None, at_ms)
        if execution is not None:
            known = changes.relay_of(device, channel)
            after, code = judge_result(device.profile, execution, STATUS_BY_REPORT[status], code, relay, known)
            self._transition(changes, device, execution, after, build_result(code, relay, data), at_ms)

    async def _find_cause(
        self,
        changes: ExecutionChangeCollector,
        device: Device,
        execution_id: str | None,
        channel: int,
        at_ms: int,
        is_confirmed: Callable[[Execution], bool],
    ) -> Execution | None:
        """The execution that the report names; for firmware that names none, the oldest unanswered one that matches."""
        if execution_id is not None:
            named = changes.get(ExecutionId(execution_id))
            return named if named is not None and can_have_caused(named, device, at_ms) else None
        if device.profile is FirmwareProfile.NATIVE:
            return None
        for execution in await changes.list_open_by_device(device):
            if execution.channel == channel and is_confirmed(execution):
                return execution
        return None

    def _set_relay(
        self,
        changes: ExecutionChangeCollector,
        device: Device,
        channel: int,
        relay: bool,
        cause: Execution | None,
        reported_cause: str | None,
        at_ms: int,
    ) -> None:
        known = changes.channel_of(device, channel)
        if known is None or not known.kind.is_switched or not changes.set_relay(device, known, relay):
            return
        word = "ON" if relay else "OFF"
        text = f"Relay is {word}" if device.has_one_relay else f"{known.name}: {word}"
        data: dict[str, Json] = {"relay": word, "channel": channel}
        changes.add_event(_reported_event(device, "relay_changed", text, data, cause, reported_cause, at_ms))

    def _transition(
        self,
        changes: ExecutionChangeCollector,
        device: Device,
        execution: Execution,
        status: ExecutionStatus,
        result: Json,
        at_ms: int,
    ) -> None:
        after = changes.transition(execution, status, result, at_ms)
        if after is not None and status.is_final:
            changes.add_event(command_result_event(after, "device", at_ms, device.name), execution_id=after.execution_id)


class ExecutionChangeCollector:
    """The changes by the reports of one batch: decided in memory, in order, and written together.

    All named executions are loaded once. Each report sees the changes of those before it. At the end each execution makes one
    transition, from its stored status to its last one, and each relay is set once. A transition that a concurrent write (the
    dispatcher's) has overtaken is retried from the new status."""

    def __init__(self, tx: CommandsTx, executions: Sequence[Execution], at_ms: int) -> None:
        """`executions`: those that the reports of the batch name. `at_ms`: when the batch was received, Unix ms."""
        self.tx = tx
        self.at_ms = at_ms
        self._stored = {execution.execution_id: execution for execution in executions}
        self._current = dict(self._stored)
        self._channels: dict[tuple[DeviceId, int], Channel] = {}
        """After the reports so far; each as stored, but for what they have changed."""
        self._changed_relays: dict[DeviceId, bool] = {}
        self._changed_states: set[tuple[DeviceId, int]] = set()
        self._events: list[tuple[DomainEvent, ExecutionId | None]] = []
        """Each with the execution whose transition it reports, if any."""
        self.ignored: Counter[str] = Counter()

    def get(self, execution_id: ExecutionId) -> Execution | None:
        """The execution after the reports so far."""
        return self._current.get(execution_id)

    async def list_open_by_device(self, device: Device) -> Sequence[Execution]:
        """Executions of the device that are QUEUED or SENT in the database, in their current state, oldest first."""
        found = await self.tx.executions.list_open_by_device(device.device_id)
        for execution in found:
            self._stored.setdefault(execution.execution_id, execution)
            self._current.setdefault(execution.execution_id, execution)
        return [self._current[execution.execution_id] for execution in found]

    def channel_of(self, device: Device, channel: int) -> Channel | None:
        """The channel after the reports so far; None for one that the device lacks."""
        return self._channels.get((device.device_id, channel)) or device.channel(channel)

    def relay_of(self, device: Device, channel: int = RELAY_CHANNEL) -> bool | None:
        """Whether the channel is on after the reports so far."""
        known = self.channel_of(device, channel)
        return None if known is None else known.state.on

    def set_relay(self, device: Device, known: Channel, relay: bool) -> bool:
        """True if this changes whether the channel is on."""
        after = self.set_channel(device, known, ChannelState(on=relay))
        if after is not None and known.channel == RELAY_CHANNEL:
            self._changed_relays[device.device_id] = relay
        return after is not None

    def set_channel(self, device: Device, known: Channel, report: ChannelState) -> Channel | None:
        """The channel after the report; None if this changes nothing."""
        key = (device.device_id, known.channel)
        state = known.state.merged(report)
        if state == known.state:
            return None
        after = self._channels[key] = replace(known, state=state)
        if device.channels:
            self._changed_states.add(key)
        return after

    async def declare_channels(
        self, device: Device, declared: Sequence[DeclaredChannel], at_ms: int, *, is_complete: bool
    ) -> tuple[Device, int]:
        """The device with what its firmware names from now on, and how many channels were left out."""
        numbered, left_out = number_channels(device.channels, declared)
        if not says_something_new(device.channels, numbered, is_complete=is_complete):
            return device, left_out
        await self.tx.devices.declare_channels(device.device_id, numbered, is_complete=is_complete)
        [after] = await self.tx.devices.list_by_ids([device.device_id]) or [device]
        for each in after.all_channels:
            key = (device.device_id, each.channel)
            known = self._channels.pop(key, None)
            if known is not None and known.kind is each.kind:
                self._channels[key] = replace(each, state=known.state)
            else:
                self._changed_states.discard(key)
        if after.channels:
            names = ", ".join(f"{each.channel} {each.name} ({each.kind})" for each in after.channels if each.is_declared)
            self.add_event(
                DomainEvent(
                    account_id=device.account_id,
                    kind="device_updated",
                    description=f"Channels named by the firmware: {names or 'none'}",
                    at_ms=at_ms,
                    source=TriggeredBy.DEVICE.value,
                    device_id=device.device_id,
                    data={"fields": ["channels"]},
                    device_name=device.name,
                )
            )
        return after, left_out

    def transition(self, execution: Execution, status: ExecutionStatus, result: Json, at_ms: int) -> Execution | None:
        """The execution after the transition; None when its status no longer allows it."""
        current = self._current[execution.execution_id]
        if not can_report(current, status):
            self.ignored["duplicate" if current.status is status else "late"] += 1
            return None
        after = replace(current, status=status, result=result, finished_ms=at_ms if status.is_final else None)
        self._current[execution.execution_id] = after
        return after

    def add_event(self, event: DomainEvent, execution_id: ExecutionId | None = None) -> None:
        self._events.append((event, execution_id))

    async def write(self, execution_waiter: ExecutionWaiter) -> None:
        """Write all changes and emit their events in the transaction."""
        if self._changed_relays:
            await self.tx.devices.set_relay_many(self._changed_relays, self.at_ms)
        if self._changed_states:
            await self.tx.devices.set_channel_states({key: self._channels[key].state for key in self._changed_states}, self.at_ms)
        stored = await self._transition_all()
        for event, execution_id in self._events:
            if execution_id is None:
                self.tx.emit(event)
            elif execution_id in stored:
                self.tx.emit(_with_correction(event, stored[execution_id]))
        finished = [after for after, before in stored.values() if after.status.is_final and not before.is_final]

        def announce() -> None:
            for execution in finished:
                execution_waiter.notify(execution)

        if finished:
            self.tx.after_commit(announce)

    async def _transition_all(self) -> dict[ExecutionId, ExecutionTransition]:
        """Each execution that was changed, with its status before."""
        pending = {key: after for key, after in self._current.items() if after is not self._stored[key]}
        done: dict[ExecutionId, ExecutionTransition] = {}
        before = self._stored
        for _ in range(MAX_ATTEMPTS):
            if not pending:
                break
            transitions = [(after, before[key].status) for key, after in pending.items()]
            stored = await self.tx.executions.transition_many(transitions)
            done |= {key: (pending.pop(key), before[key].status) for key in list(pending) if key in stored}
            if pending:
                before = {one.execution_id: one for one in await self.tx.executions.list_by_ids(set(pending))}
                pending = {
                    key: self._rebase(after, before[key])
                    for key, after in pending.items()
                    if self._can_transition(after, before.get(key))
                }
        return done

    def _can_transition(self, after: Execution, current: Execution | None) -> bool:
        allowed = current is not None and can_report(current, after.status)
        self.ignored["late"] += not allowed
        return allowed

    @staticmethod
    def _rebase(after: Execution, current: Execution) -> Execution:
        return replace(current, status=after.status, result=after.result, finished_ms=after.finished_ms)


def can_report(execution: Execution, status: ExecutionStatus) -> bool:
    """Whether a report of the device moves the execution to this status."""
    if status in ALLOWED_TRANSITIONS[execution.status]:
        return True
    if status not in _REPORTED_ENDS:
        return False
    if execution.status in (ExecutionStatus.CANCELLED, ExecutionStatus.TIMED_OUT):
        return True
    code = execution.result.get("code") if isinstance(execution.result, dict) else None
    return execution.status.is_final and code in _ASSUMED_CODES


def can_have_caused(execution: Execution, device: Device, at_ms: int) -> bool:
    return execution.device_id == device.device_id and at_ms <= execution.expires_ms + CAUSE_WINDOW_MS


def target_relay_state(cmd: str) -> bool | None:
    """The relay state that the command sets; None when the command alone does not decide it."""
    return {"ON": True, "OFF": False}.get(cmd)


def can_resend(profile: FirmwareProfile, cmd: str) -> bool:
    """Our firmware recognises a repeated id. Stock firmware would run the command again, so only idempotent commands may be
    resent to it."""
    return profile is FirmwareProfile.NATIVE or (cmd != "TOGGLE" and cmd in BUILT_IN_BY_NAME)


def is_confirmed_by_state(profile: FirmwareProfile, execution: Execution, relay: bool, at_ms: int) -> bool:
    """Whether this command can explain a relay report that names no execution and arrived at `at_ms`. What a device said before
    it was sent the command confirms nothing."""
    if profile is FirmwareProfile.NATIVE or execution.status is not ExecutionStatus.SENT:
        return False
    if execution.sent_ms is not None and at_ms < execution.sent_ms:
        return False
    return execution.cmd == "TOGGLE" or target_relay_state(execution.cmd) == relay


def is_confirmed_by_channel(profile: FirmwareProfile, execution: Execution, state: ChannelState, at_ms: int) -> bool:
    """As `is_confirmed_by_state`, for commands that set more than on and off."""
    if profile is FirmwareProfile.NATIVE or execution.status is not ExecutionStatus.SENT:
        return False
    if execution.sent_ms is not None and at_ms < execution.sent_ms:
        return False
    params = execution.params if isinstance(execution.params, dict) else {}
    moving = state.details.get("moving")
    match execution.cmd:
        case "SET_LEVEL":
            return state.level == params.get("level")
        case "SET_POSITION":
            return moving is None and state.level == params.get("position")
        case "OPEN":
            return moving == "OPENING" or state.level == MAX_LEVEL
        case "CLOSE":
            return moving == "CLOSING" or state.level == 0
        case "STOP":
            return moving is None and state.level is not None
        case "SET_COLOR":
            color = params.get("color")
            wanted = {"color": color.lower() if isinstance(color, str) else None, "kelvin": params.get("kelvin")}
            return all(value is None or state.details.get(name) == value for name, value in wanted.items())
        case "SET_TARGET":
            return state.details.get("targetCelsius") == params.get("celsius")
        case "SET_MODE":
            return state.details.get("mode") == params.get("mode")
    return False


def judge_result(
    profile: FirmwareProfile,
    execution: Execution,
    status: ExecutionStatus,
    code: str | None,
    relay: bool | None,
    known: bool | None,
) -> tuple[ExecutionStatus, str | None]:
    """Status and code of a reported result. Stock firmware reports what it has run; ON and OFF are done when the relay agrees
    (`relay`, else `known`, its last report). Tasmota runs a Backlog to its end whatever its steps say: without a relay that
    agrees, it has only acknowledged."""
    target = target_relay_state(execution.cmd)
    if profile is FirmwareProfile.NATIVE or status is not ExecutionStatus.DONE:
        return status, code
    if relay is not None:
        return (status, code) if target is None or relay is target else (ExecutionStatus.FAILED, STATE_MISMATCH)
    is_confirmed = profile is not FirmwareProfile.TASMOTA or (execution.cmd != "TOGGLE" if target is None else known is target)
    return (status if is_confirmed else ExecutionStatus.ACKED), code


def build_result(code: str | None, relay: bool | None = None, data: Json = None) -> Json:
    """A result as stored and shown by the API."""
    return {"code": code, "relay": None if relay is None else "ON" if relay else "OFF", "data": data}


def expire_execution(execution: Execution, now_ms: int, *, may_be_sent: bool = False) -> ExecutionTransition:
    """The transition of an execution whose deadline has passed. Only one that was surely never sent is EXPIRED. `may_be_sent`:
    whether another instance may have sent it without having recorded it yet."""
    never_had = execution.status is ExecutionStatus.QUEUED and execution.sent_ms is None and not may_be_sent
    status = ExecutionStatus.EXPIRED if never_had else ExecutionStatus.TIMED_OUT
    result = build_result(NOT_DELIVERED if never_had else NO_ANSWER)
    return replace(execution, status=status, finished_ms=now_ms, result=result), execution.status


def command_result_event(execution: Execution, source: str, at_ms: int, device_name: str | None = None) -> DomainEvent:
    code = execution.result.get("code") if isinstance(execution.result, dict) else None
    because = f" ({code})" if isinstance(code, str) else ""
    return DomainEvent(
        account_id=execution.account_id,
        kind="command_result",
        description=f"Command {on_channel(execution.cmd, execution.channel)}: {execution.status}{because}",
        at_ms=at_ms,
        source=source,
        device_id=execution.device_id,
        data={
            "executionId": execution.execution_id,
            "cmd": execution.cmd,
            "channel": execution.channel,
            "status": execution.status.value,
            "code": code,
            "requestedBy": execution.requested_by,
        },
        device_name=device_name,
    )


def _reported_event(
    device: Device,
    kind: EventKind,
    text: str,
    data: Mapping[str, Json],
    cause: Execution | None,
    reported_cause: str | None,
    at_ms: int,
) -> DomainEvent:
    ran_plan = reported_cause in SCHEDULE_CAUSES  # everything else is a button, wiring, or the device's own logic
    triggered_by = cause.source if cause is not None else TriggeredBy.SCHEDULE if ran_plan else TriggeredBy.DEVICE
    return DomainEvent(
        account_id=device.account_id,
        kind=kind,
        description=text,
        at_ms=at_ms,
        source=cause.requested_by if cause is not None else triggered_by.value,
        device_id=device.device_id,
        data={**data, "triggeredBy": triggered_by.value},
        device_name=device.name,
    )


def _state_changed_event(
    device: Device, channel: Channel, cause: Execution | None, reported_cause: str | None, at_ms: int
) -> DomainEvent:
    shown = channel.shown_state
    words = [f"{name} {value}" for name, value in shown.items() if value is not None] if isinstance(shown, dict) else [str(shown)]
    data: dict[str, Json] = {"channel": channel.channel, "name": channel.name, "state": shown}
    text = f"{channel.name}: {', '.join(words)}"
    return _reported_event(device, "state_changed", text, data, cause, reported_cause, at_ms)


def _with_correction(event: DomainEvent, transition: ExecutionTransition) -> DomainEvent:
    """The event of a result; it says so when it replaces an end that was told before."""
    after, before = transition
    if not before.is_final:
        return event
    description = event.description.replace(after.status.value, f"{after.status.value} instead of {before.value}", 1)
    return replace(event, description=description, data={**event.data, "correctedFrom": before.value})
