"""The payloads of native firmware; their topics are in `native_topics.py`. The wire contract's section 6.

`native.py` decodes and encodes with the same types; the AsyncAPI document shows their JSON Schemas.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

RelayState = Literal["ON", "OFF"]
ShortText = Annotated[str, msgspec.Meta(max_length=64)]
Revision = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
UnixMs = Annotated[int, msgspec.Meta(description="Unix milliseconds.")]


class StatePayload(msgspec.Struct):
    """What the relay does now."""

    relay: RelayState
    by: Annotated[ShortText | None, msgspec.Meta(description="The cause: `cmd`, `button`, `sched`.")] = None
    id: Annotated[ShortText | None, msgspec.Meta(description="With `cmd`: the id of the command.")] = None


class ResultPayload(msgspec.Struct):
    """The device's answer to a command: `ack` when it has it, then one of the others."""

    id: ShortText
    status: Literal["ack", "done", "error", "expired"]
    code: ShortText | None = None
    relay: RelayState | None = None
    data: Any = None


class PlanRevisionPayload(msgspec.Struct):
    """Which plan the device has stored."""

    rev: Revision


class HelloPayload(msgspec.Struct):
    """Sent after connecting: firmware version, and the revision of the stored plan."""

    fw: ShortText | None = None
    sched: Revision | None = None


class CommandPayload(msgspec.Struct):
    """A command. The device does not run an id a second time, nor anything after `exp`."""

    id: str
    cmd: str
    params: Any
    exp: UnixMs


class SchedulePlanPayload(msgspec.Struct):
    """The schedules that the device runs while it is offline."""

    rev: Revision
    s: Annotated[
        list[Annotated[list[int | bool], msgspec.Meta(min_length=4, max_length=4)]],
        msgspec.Meta(max_length=5, description="Slot, onTs, offTs (Unix seconds), enabled."),
    ]


class TimePayload(msgspec.Struct):
    """The service's time."""

    t: UnixMs
