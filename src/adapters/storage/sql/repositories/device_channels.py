"""The channels of devices: a part of the repository of devices, which reads them with each device.

Each column has one owner. What the firmware names never overwrites what a person says, and neither of them a state that is
reported meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import and_, bindparam, case, delete, false, func, null, select, true, update

from adapters.storage.sql.mapping import SqlRepository, from_json, to_json
from adapters.storage.sql.statements import insert, json_rows, listed_integers
from adapters.storage.sql.tables import device_channels, devices
from domain.devices.channels import Channel, ChannelInput, ChannelKind, ChannelState, DeclaredChannel
from domain.kernel.ids import DeviceId

c = device_channels.c
_CHANNEL_COLUMNS = (
    c.channel,
    c.kind,
    c.given_name,
    c.firmware_name,
    c.component,
    c.is_declared,
    c.is_on,
    c.level,
    c.details,
    c.reported_ms,
)
CHANNELS = (
    select(json_rows(*_CHANNEL_COLUMNS)).where(c.device_id == devices.c.device_id).correlate(devices).scalar_subquery()
).label("channels")


def channels_from_json(text: str | None) -> tuple[Channel, ...]:
    if text is None or text == "[]":
        return ()
    return tuple(
        Channel(
            channel,
            ChannelKind(kind),
            given_name,
            firmware_name,
            component,
            bool(is_declared),
            ChannelState(None if is_on is None else bool(is_on), level, {} if details is None else from_json(details)),
            reported_ms,
        )
        for channel, kind, given_name, firmware_name, component, is_declared, is_on, level, details, reported_ms in sorted(
            from_json(text)
        )
    )


_NEW_CHANNEL = insert(device_channels)
_HAS_CHANGED_KIND = c.kind != _NEW_CHANNEL.excluded.kind
_HAS_OTHER_COMPONENT = c.component != _NEW_CHANNEL.excluded.component
_STATE_OF_KIND = {each.name: case((_HAS_CHANGED_KIND, null()), else_=each) for each in _CHANNEL_COLUMNS[6:]}
"""A channel of another kind has another state."""
DECLARE_CHANNEL = _NEW_CHANNEL.on_conflict_do_update(
    index_elements=[c.device_id, c.channel],
    set_={
        "kind": _NEW_CHANNEL.excluded.kind,
        "firmware_name": func.coalesce(
            _NEW_CHANNEL.excluded.firmware_name, case((_HAS_OTHER_COMPONENT, null()), else_=c.firmware_name)
        ),
        "component": func.coalesce(_NEW_CHANNEL.excluded.component, c.component),
        "is_declared": true(),
        **_STATE_OF_KIND,
    },
)
_OF_DEVICE = c.device_id == bindparam("at_device")
FORGET_DECLARATIONS = update(device_channels).where(_OF_DEVICE, c.is_declared).values(is_declared=false())
DESCRIBE_CHANNEL = _NEW_CHANNEL.on_conflict_do_update(
    index_elements=[c.device_id, c.channel],
    set_={
        "kind": case((c.is_declared, c.kind), else_=_NEW_CHANNEL.excluded.kind),
        "given_name": _NEW_CHANNEL.excluded.given_name,
        **{name: case((and_(_HAS_CHANGED_KIND, ~c.is_declared), null()), else_=c[name]) for name in _STATE_OF_KIND},
    },
)
DELETE_CHANNELS = delete(device_channels).where(_OF_DEVICE, c.channel.not_in(listed_integers()), ~c.is_declared)
CLEAR_GIVEN_NAMES = (
    update(device_channels).where(_OF_DEVICE, c.channel.not_in(listed_integers()), c.given_name.is_not(None))
).values(given_name=None)
SET_CHANNEL_STATE = (
    update(device_channels)
    .where(_OF_DEVICE, c.channel == bindparam("at_channel"))
    .values(
        is_on=bindparam("at_on", type_=c.is_on.type),
        level=bindparam("at_level", type_=c.level.type),
        details=bindparam("at_details", type_=c.details.type),
        reported_ms=bindparam("at_ms", type_=c.reported_ms.type),
    )
)


def _new_channel(device_id: DeviceId, channel: int, kind: ChannelKind) -> dict[str, Any]:
    unknown = dict.fromkeys(("given_name", "firmware_name", "component", "is_on", "level", "details", "reported_ms"))
    return {"device_id": device_id, "channel": channel, "kind": kind.value, "is_declared": False, **unknown}


class SqlDeviceChannelMixin(SqlRepository):
    """The part of the repository of devices that stores their channels."""

    async def declare_channels(
        self, device_id: DeviceId, declared: Sequence[tuple[int, DeclaredChannel]], *, is_complete: bool
    ) -> None:
        if is_complete:
            await self._session.write(FORGET_DECLARATIONS, at_device=device_id)
        rows = [
            _new_channel(device_id, number, each.kind)
            | {"firmware_name": each.name, "component": each.component, "is_declared": True}
            for number, each in sorted(declared)
        ]
        if rows:
            await self._session.execute_many(DECLARE_CHANNEL, rows)

    async def describe_channels(self, device_id: DeviceId, channels: Sequence[ChannelInput]) -> None:
        listed_ones = {"at_device": device_id, "at_listed": to_json(sorted(each.channel for each in channels))}
        await self._session.write(DELETE_CHANNELS, **listed_ones)
        await self._session.write(CLEAR_GIVEN_NAMES, **listed_ones)
        rows = [_new_channel(device_id, each.channel, each.kind) | {"given_name": each.name} for each in channels]
        if rows:
            await self._session.execute_many(DESCRIBE_CHANNEL, rows)

    async def set_channel_states(self, states: Mapping[tuple[DeviceId, int], ChannelState], at_ms: int) -> None:
        rows = [
            {
                "at_device": device_id,
                "at_channel": channel,
                "at_on": state.on,
                "at_level": state.level,
                "at_details": to_json(state.details) if state.details else None,
                "at_ms": at_ms,
            }
            for (device_id, channel), state in sorted(states.items(), key=itemgetter(0))
        ]
        await self._session.execute_many(SET_CHANNEL_STATE, rows, defer=True)
